"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const view = JSON.parse($("#cuda-ext-view").textContent);
  const { architectures, jobs, units, kernels } = view;
  const manyModules = new Set(units.map((unit) => unit.module)).size > 1;

  function make(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
      else if (name === "style") for (const [key, v] of Object.entries(value)) element.style.setProperty(key, v);
      else if (value !== null && value !== undefined && value !== false) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }
  /** A long name, with line breaks allowed where a reader would put them. */
  const code = (name) => make("code", {}, ...name.split(/(?<=[/,:<])/).flatMap((part, i) => i ? [make("wbr"), part] : [part]));
  const whole = (number) => number.toLocaleString("en");
  const fixed = (number, digits) =>
    number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  /** One unit for a whole table, so that its numbers can be compared at a glance. */
  function bytesIn(most) {
    const [unit, scale, digits] = most >= 10 << 20 ? ["MiB", 1 << 20, 2] : most >= 10 << 10 ? ["KiB", 1 << 10, 1] : ["bytes", 1, 0];
    return { unit, show: (value) => fixed(value / scale, digits) };
  }
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  // Math.max(...numbers) fails for some ten thousand numbers.
  const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, number ?? 0), 0);
  /** The button below the first `limit` of `count` rows. */
  const showAll = (count, limit, noun, onclick) => count > limit
    ? make("button", { type: "button", class: "more", onclick }, `Show all ${whole(count)} ${noun}`)
    : null;
  const press = (buttons, pressed) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === pressed));
  };

  for (const element of all("[data-needs-script]")) element.hidden = false;

  /** Sort a table by its heads, filter it by its field if there is one, and cut it short. */
  function enhance(table) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const limit = Number(table.dataset.limit ?? Infinity);
    const field = table.id ? $(`[data-filter="${table.id}"]`) : null;
    const none = make("p", { class: "empty", hidden: true }), foot = make("div");
    table.parentElement.after(none, foot);
    let open = false;
    const show = () => {
      const words = field ? field.value.toLowerCase() : "";
      const fitting = rows.filter((row) => row.textContent.toLowerCase().includes(words));
      for (const row of rows) row.hidden = true;
      fitting.forEach((row, i) => { row.hidden = !open && i >= limit; });
      foot.replaceChildren(open ? "" : showAll(fitting.length, limit, table.dataset.noun ?? "rows", () => { open = true; show(); }) ?? "");
      none.hidden = fitting.length > 0 || !rows.length;
      none.textContent = `Nothing matches “${field?.value}”.`;
    };
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      const isNumber = head.dataset.sort === "number";
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const sort = () => {
        const [first, second] = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
        const order = head.getAttribute("aria-sort") === first ? second : first;
        for (const other of heads) other.removeAttribute("aria-sort");
        head.setAttribute("aria-sort", order);
        const sign = order === "ascending" ? 1 : -1;
        rows.sort((a, b) => sign * (isNumber ? value(a) - value(b) : byName(value(a), value(b))));
        body.append(...rows);
        show();
      };
      head.replaceChildren(make("button", { type: "button", onclick: sort }, head.textContent));
    });
    field?.addEventListener("input", show);
    show();
  }
  all("table").forEach(enhance);

  /**
   * A table with kernels or units down and architectures across. Returns a function that shows `content`: its
   * rows, how to show a number, whether to sum up, and the number that fills a bar.
   */
  function matrix(section, noun, columns) {
    const host = $(".matrix", section), search = $('input[type="search"]', section), unit = $("[data-unit]", section);
    const head = make("tr"), body = make("tbody"), foot = make("div");
    const opened = new Set();
    let content = null, sorted = { by: "total", sign: -1 }, open = false;
    host.append(make("div", {}, make("table", {}, make("thead", {}, head), body)), foot);
    const value = (row, by) => by === "name" ? row.name : by === "total" ? row.total : row.values[by] ?? null;

    function headCell(by, label, className) {
      const order = sorted.by !== by ? null : sorted.sign < 0 ? "descending" : "ascending";
      const sort = () => {
        sorted = { by, sign: sorted.by === by ? -sorted.sign : by === "name" ? 1 : -1 };
        draw();
        $(`[data-by="${by}"]`, head)?.focus();
      };
      return make("th", { scope: "col", class: className, "aria-sort": order },
        make("button", { type: "button", "data-by": by, onclick: sort }, label));
    }
    function numberCell(row, name, most) {
      const number = row.values[name] ?? null;
      if (number === null) return make("td", { class: "cell quiet", title: row.titles[name] ?? "not known" }, "–");
      const spills = content.marked && row.spilling?.includes(name);
      return make("td", {
        class: spills ? "cell spills" : number ? "cell" : "cell quiet", title: row.titles[name],
        style: { "--h": (number / (content.full ?? (most || 1))).toFixed(3) },
      }, spills ? "▲ " : "", content.show(number), spills ? make("span", { class: "sr" }, " spills") : null);
    }
    function nameCell(row, id) {
      const where = [manyModules ? row.module : "", row.unit === row.name ? "" : row.unit].filter(Boolean).join(" · ");
      const small = where ? make("small", {}, where) : null;
      if (!row.inner) return make("th", { scope: "row" }, code(row.name), small);
      const toggle = () => {
        opened.has(row) ? opened.delete(row) : opened.add(row);
        draw();
        $(`[aria-controls="${id}"]`, body)?.focus();
      };
      const mark = row.spilling.length ? make("span", { class: "spill", title: "spills registers" }, "▲") : null;
      const button = make("button", {
        type: "button", "aria-expanded": String(opened.has(row)), "aria-controls": id, onclick: toggle,
      }, code(row.name), mark);
      return make("th", { scope: "row", class: "opens" }, button, small);
    }
    function totalCell(row, widest) {
      const width = `${(100 * row.total / (content.full ?? (widest || 1))).toFixed(2)}%`;
      return make("td", { class: "total" }, make("span", {}, row.total === null ? "–" : content.show(row.total)),
        row.total ? make("span", { class: "bar", "aria-hidden": "true" }, make("span", { style: { width } })) : null);
    }
    function sumRow(rows) {
      const sum = (by) => content.show(rows.reduce((sum, row) => sum + (value(row, by) ?? 0), 0));
      return make("tr", { class: "sum" }, make("th", { scope: "row" }, `All ${whole(rows.length)}`),
        ...columns.map((name) => make("td", { class: "cell" }, sum(name))),
        make("td", { class: "total" }, make("span", {}, sum("total"))));
    }
    function draw() {
      const words = (search?.value ?? "").toLowerCase(), limit = 25, width = columns.length + 2;
      const rows = content.rows.filter((row) => `${row.name} ${row.unit} ${row.module}`.toLowerCase().includes(words));
      rows.sort((a, b) => {
        const [x, y] = [value(a, sorted.by), value(b, sorted.by)];
        if (x === null || y === null) return (x === null) - (y === null);
        return sorted.sign * (sorted.by === "name" ? byName(x, y) : x - y) || byName(a.name, b.name);
      });
      const most = largest(content.rows.flatMap((row) => Object.values(row.values)));
      const widest = largest(content.rows.map((row) => row.total));
      head.replaceChildren(
        headCell("name", noun[0].toUpperCase() + noun.slice(1), ""),
        ...columns.map((name) => headCell(name, name, "number")),
        headCell("total", content.sum ? "All" : "Largest", "number total"),
      );
      body.replaceChildren();
      if (content.sum && rows.length > 1) body.append(sumRow(rows));
      for (const row of open ? rows : rows.slice(0, limit)) {
        const id = `${noun}-${content.rows.indexOf(row)}`;
        body.append(make("tr", {}, nameCell(row, id), ...columns.map((name) => numberCell(row, name, most)), totalCell(row, widest)));
        if (opened.has(row)) body.append(make("tr", { class: "inner", id }, make("td", { colspan: width }, row.inner())));
      }
      if (!rows.length) {
        const text = words ? `Nothing matches “${search.value}”.` : `No ${noun} spills.`;
        body.append(make("tr", {}, make("td", { colspan: width, class: "quiet" }, text)));
      }
      unit.textContent = content.unit ? `, in ${content.unit}` : "";
      foot.replaceChildren(open ? "" : showAll(rows.length, limit, `${noun}s`, () => { open = true; draw(); }) ?? "");
    }
    search.addEventListener("input", draw);
    return (next) => { content = next; draw(); };
  }
  const columnsOf = (values) => architectures.filter((name) => values.some((value) => name in value));
  const mapValues = (object, change) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));

  if (units.length) {
    const rows = units.map(({ module, unit, sizes }) => ({
      module, unit, name: unit, values: sizes,
      titles: mapValues(sizes, (size) => `${whole(size)} bytes`),
      total: Object.values(sizes).reduce((sum, size) => sum + size, 0),
    }));
    const sizes = bytesIn(largest(rows.flatMap((row) => Object.values(row.values))));
    matrix($("#images"), "unit", columnsOf(units.map((unit) => unit.sizes)))({ rows, sum: true, ...sizes });
  }

  if (kernels.length) {
    const section = $("#kernels"), only = $("[data-spilling]", section), tabs = $(".tabs", section);
    const metrics = [
      { label: "Code size", field: "code", isSize: true }, { label: "Registers", field: "registers", full: 255, marked: true },
      { label: "Spills", field: "spilled", isSize: true, marked: true }, { label: "Stack", field: "stack", isSize: true },
      { label: "Shared memory", field: "shared", isSize: true }, { label: "Constant memory", field: "constant", isSize: true },
    ];
    const details = {
      Code: "code", Registers: "registers", "Spill stores": "spill_stores", "Spill loads": "spill_loads",
      Stack: "stack", Shared: "shared", Constant: "constant",
    };
    const known = (number) => number === null ? "–" : whole(number);
    const title = (usage) => `${whole(usage.code)} bytes of code, ${known(usage.registers)} registers, ` +
      `${known(usage.spilled)} bytes spilled, ${known(usage.stack)} stack, ${known(usage.shared)} shared`;
    const inner = (usage) => make("table", {},
      make("thead", {}, make("tr", {}, make("th", { scope: "col" }, "Architecture"),
        ...Object.keys(details).map((label) => make("th", { scope: "col", class: "number" }, label)))),
      make("tbody", {}, ...architectures.filter((name) => name in usage).map((name) => make("tr", {},
        make("th", { scope: "row" }, name),
        ...Object.values(details).map((field) => make("td", { class: "number" }, known(usage[name][field])))))));
    const rows = kernels.map(({ module, unit, name, usage }) => ({
      module, unit, name, usage, titles: mapValues(usage, title), inner: () => inner(usage),
      spilling: Object.keys(usage).filter((architecture) => usage[architecture].spilled),
    }));
    const show = matrix(section, "kernel", columnsOf(kernels.map((kernel) => kernel.usage)));
    let metric = metrics[0];
    function draw() {
      for (const row of rows) {
        row.values = mapValues(row.usage, (usage) => usage[metric.field]);
        const numbers = Object.values(row.values).filter((number) => number !== null);
        row.total = numbers.length ? Math.max(...numbers) : null;
      }
      const sizes = metric.isSize ? bytesIn(largest(rows.map((row) => row.total))) : { unit: "", show: whole };
      show({ ...metric, ...sizes, rows: only.checked ? rows.filter((row) => row.spilling.length) : rows });
    }
    tabs.append(...metrics.map((each) => make("button", {
      type: "button", "aria-pressed": String(each === metric),
      onclick: (event) => { metric = each; press(tabs.children, event.currentTarget); draw(); },
    }, each.label)));
    only.addEventListener("change", draw);
    draw();
  }

  const host = $("#lanes");
  if (!host) return;

  // The same jobs as in the timeline, as text; made when the table is opened.
  const table = $("#jobs");
  table.addEventListener("toggle", () => {
    if (table.dataset.made) return;
    table.dataset.made = "yes";
    const number = (value, shown) => make("td", { class: "number", "data-value": value }, shown);
    const heads = ["Unit", "Architecture", "Action", "Outcome", "Worker", "Start", "Time"].map((label, i) =>
      make("th", {
        scope: "col", class: i > 4 ? "number" : "", "data-sort": i > 4 ? "number" : "text", "aria-sort": label === "Time" ? "descending" : null,
      }, label));
    const rows = [...jobs].sort((a, b) => b.duration - a.duration).map((job) => make("tr", {},
      make("th", { scope: "row" }, code(job.unit)), make("td", {}, job.architecture), make("td", {}, job.action),
      make("td", {}, job.outcome === "failed" ? make("span", { class: "change bad" }, "✕ failed") : job.outcome),
      make("td", {}, job.worker || view.cache), number(job.start, `${fixed(job.start, 2)} s`),
      number(job.duration, job.outcome === "cached" ? "–" : job.took)));
    const element = make("table", { "data-limit": 20, "data-noun": "compilations" },
      make("thead", {}, make("tr", {}, ...heads)), make("tbody", {}, ...rows));
    table.append(make("div", { class: "scroll" }, element));
    enhance(element);
  });

  // The timeline: a lane for each worker, in which bars stand at their share of the whole time.
  const end = Math.max(view.duration, largest(jobs.map((job) => job.start + job.duration)), 1e-3);
  const percent = (seconds) => `${(100 * seconds / end).toFixed(4)}%`;
  const used = architectures.filter((name) => jobs.some((job) => job.architecture === name));
  const isCubin = (name) => name.startsWith("sm_");
  /** Cubins go from violet to green, the newer the lighter; PTX and LTO-IR are yellow and orange. */
  function colourOf(name) {
    const alike = used.filter((other) => isCubin(other) === isCubin(name));
    const along = alike.length > 1 ? alike.indexOf(name) / (alike.length - 1) : 0.5;
    const [lighter, chroma, hue] = isCubin(name) ? [0.14 * along, 0.12, 290 - 130 * along] : [0.32 - 0.08 * along, 0.115, 88 - 26 * along];
    return { "--lighter": lighter.toFixed(3), "--chroma": chroma, "--hue": hue.toFixed(1) };
  }
  const colours = Object.fromEntries(used.map((name) => [name, colourOf(name)]));

  const workers = view.lanes.filter((lane) => lane.name !== view.cache).length;
  host.dataset.rows = workers <= 4 ? "tall" : workers <= 12 ? "medium" : "low";
  const axis = make("div", { class: "axis", "aria-hidden": "true" }), range = make("div", { class: "range", hidden: true });
  const track = make("div", { class: "track" }, axis), scroller = make("div", { class: "scroller", tabindex: 0, role: "group", "aria-label": host.getAttribute("aria-label") }, track);
  const bars = jobs.map((job, index) => {
    const stem = job.unit.split("/").pop().replace(/(?<=.)\.[^.]*$/, "");
    return make("div", {
      class: `job ${job.outcome} ${isCubin(job.architecture) ? "cubin" : ""} ${["compile", "link"].includes(job.action) ? "" : "half"}`,
      "data-job": index, style: { left: percent(job.start), width: percent(job.duration), ...colours[job.architecture] },
    }, job.outcome === "cached" ? null : make("span", {}, `${job.outcome === "failed" ? "✕ " : ""}${stem} `, make("i", {}, job.architecture)));
  });
  const labels = make("div", { class: "labels" });
  for (const lane of view.lanes) {
    const isCache = lane.name === view.cache, className = isCache ? "lane cache" : "lane";
    const label = isCache ? "cache" : /^\d/.test(lane.name) ? `worker ${lane.name}` : lane.name || "worker";
    labels.append(make("div", { class: className, title: label }, make("span", {}, label)));
    track.append(make("div", { class: className }, ...lane.jobs.map((index) => bars[index])));
  }
  track.append(range);
  host.append(labels, scroller);

  const legend = $("#legend"), tooltip = $("#tooltip");
  let colour = "architecture", chosen = null;
  const key = (job) => colour === "architecture" ? job.architecture : job.outcome;
  function drawLegend() {
    host.dataset.colour = colour;
    const names = colour === "architecture" ? used : ["compiled", "cached", "failed"];
    const entries = names.map((name) => [name, jobs.filter((job) => key(job) === name).length]).filter(([, count]) => count);
    legend.replaceChildren(...entries.map(([name, count]) => make("button", {
      type: "button", "aria-pressed": String(chosen === name),
      onclick: () => { chosen = chosen === name ? null : name; drawLegend(); },
    }, make("i", { class: `swatch ${colour === "architecture" ? "shade" : name}`, style: colours[name] ?? {} }), name, make("small", { class: "quiet" }, whole(count)))));
    if (colour === "architecture" && jobs.some((job) => job.outcome === "failed")) {
      legend.append(make("button", { type: "button", disabled: "" }, make("i", { class: "swatch failed" }), "✕ failed"));
    }
    legend.classList.toggle("chosen", chosen !== null);
    bars.forEach((bar, index) => bar.classList.toggle("faded", chosen !== null && key(jobs[index]) !== chosen));
  }

  /** The distance between ticks if there are to be about `count` in `span` seconds. */
  function step(span, count) {
    const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
    const clock = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];
    if (rough > 10) return clock.find((unit) => unit >= rough) ?? 86400 * Math.ceil(rough / 86400);
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  }
  function tickLabel(seconds, unit) {
    if (unit >= 60 || (end >= 120 && unit >= 1)) {
      return `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`;
    }
    const digits = Math.max(0, -Math.floor(Math.log10(unit) + 1e-9));
    return end < 1 ? `${fixed(seconds * 1000, Math.max(0, digits - 3))} ms` : `${fixed(seconds, digits)} s`;
  }
  /** Draw the ticks of what is in view. */
  function drawAxis() {
    const width = scroller.clientWidth, from = end * scroller.scrollLeft / track.clientWidth, to = from + end * width / track.clientWidth;
    const unit = step(to - from, Math.max(2, Math.floor(width / 85))), ticks = [];
    for (let i = Math.max(0, Math.ceil(from / unit - 1e-9)); i * unit <= to * (1 + 1e-9); i++) {
      ticks.push(make("span", { style: { left: percent(i * unit) } }, tickLabel(i * unit, unit)));
    }
    axis.replaceChildren(...ticks);
  }
  let zoom = 1, waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; drawAxis(); });
  };
  /** Show `span` seconds from `start`. */
  function show(start, span) {
    zoom = Math.min(Math.max(end / span, 1), Math.max(end * 1e3, 1));
    track.style.width = `${100 * zoom}%`;
    scroller.scrollLeft = start / end * track.clientWidth;
    redraw();
  }
  const shown = () => [end * scroller.scrollLeft / track.clientWidth, end / zoom];
  function scale(factor, about) {
    const [start, span] = shown();
    const fixedPoint = about ?? start + span / 2;
    show(fixedPoint - (fixedPoint - start) * factor, span * factor);
  }
  /** The time at which `event` points. */
  const timeAt = (event) => {
    const box = track.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * end;
  };

  function explain(job, event) {
    const line = (name, value) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, value));
    const [did, when] = job.outcome === "cached" ? ["From the cache", "–"] : [job.outcome === "failed" ? "✕ Failed after" : "Compiled in", job.took];
    const about = [manyModules ? job.module : "", job.architecture, ["compile", "link"].includes(job.action) ? "" : job.action];
    tooltip.replaceChildren(
      make("strong", {}, job.unit), make("span", { class: "quiet" }, about.filter(Boolean).join(" · ")),
      make("table", {}, make("tbody", {}, line(did, when), line("Started at", `${fixed(job.start, 2)} s`),
        ...job.phases.map(([phase, time]) => line(phase, time)))));
    tooltip.hidden = false;
    const box = tooltip.getBoundingClientRect(), fits = event.clientX + 14 + box.width <= window.innerWidth - 8;
    const x = Math.max(8, fits ? event.clientX + 14 : event.clientX - 14 - box.width);
    const y = Math.max(8, Math.min(event.clientY + 16, window.innerHeight - box.height - 8));
    tooltip.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
  }
  let dragged = null;
  scroller.addEventListener("pointerdown", (event) => {
    if (event.button || event.pointerType !== "mouse" || event.offsetY > scroller.clientHeight) return;
    dragged = { x: event.clientX, time: timeAt(event) };
    scroller.setPointerCapture(event.pointerId);
  });
  const isRange = (event) => dragged && Math.abs(event.clientX - dragged.x) > 3;
  const sides = (event) => [dragged.time, timeAt(event)].sort((a, b) => a - b);
  scroller.addEventListener("pointermove", (event) => {
    range.hidden = !isRange(event);
    if (!range.hidden) {
      const [from, to] = sides(event);
      range.style.left = percent(from);
      range.style.width = percent(to - from);
    }
    const bar = range.hidden ? event.target.closest(".job") : null;
    tooltip.hidden = true;
    if (bar) explain(jobs[bar.dataset.job], event);
  });
  scroller.addEventListener("pointerup", (event) => {
    if (isRange(event)) {
      const [from, to] = sides(event);
      show(from, to - from);
    }
    dragged = null;
    range.hidden = true;
  });
  scroller.addEventListener("pointercancel", () => { dragged = null; range.hidden = true; });
  scroller.addEventListener("pointerleave", () => { tooltip.hidden = true; });
  scroller.addEventListener("dblclick", () => show(0, end));
  scroller.addEventListener("scroll", redraw);
  scroller.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    scale(Math.exp(event.deltaY / 300), timeAt(event));
  }, { passive: false });
  scroller.addEventListener("keydown", (event) => {
    const actions = { "+": () => scale(0.6), "=": () => scale(0.6), "-": () => scale(1 / 0.6), 0: () => show(0, end), Home: () => show(0, end) };
    if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    actions[event.key]();
  });
  const zooms = { in: () => scale(0.5), out: () => scale(2), all: () => show(0, end) };
  for (const button of all("[data-zoom]")) button.addEventListener("click", zooms[button.dataset.zoom]);
  const modes = all("[data-colour]", $("#timeline .controls"));
  for (const button of modes) {
    button.addEventListener("click", () => {
      [colour, chosen] = [button.dataset.colour, null];
      press(modes, button);
      drawLegend();
    });
  }
  window.addEventListener("resize", redraw);
  drawLegend();
  drawAxis();
})();
