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
  const press = (buttons, pressed) => {
    for (const button of buttons) button.setAttribute("aria-pressed", String(button === pressed));
  };

  for (const element of all("[data-needs-script]")) element.hidden = false;

  /** Sort a table by its heads, filter it by its field and by `fits`, and cut it short. */
  function enhance(table, { field = null, fits = () => true, onShow = () => {} } = {}) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
    const limit = Number(table.dataset.limit ?? Infinity), foot = make("div");
    table.parentElement.after(foot);
    let open = false;
    function show() {
      const words = (field?.value ?? "").toLowerCase();
      const fitting = rows.filter((row) => fits(row) && row.cells[0].textContent.toLowerCase().includes(words));
      const shown = open ? fitting : fitting.slice(0, limit);
      body.replaceChildren(...shown.flatMap((row) => row.detail ? [row, row.detail] : [row]));
      if (!fitting.length) {
        const text = words ? `Nothing matches “${field.value}”.` : table.dataset.empty ?? "";
        body.append(make("tr", {}, make("td", { colspan: heads.length, class: "quiet" }, text)));
      }
      foot.replaceChildren();
      if (shown.length < fitting.length) {
        const label = `Show all ${whole(fitting.length)} ${table.dataset.noun ?? "rows"}`;
        foot.append(make("button", { type: "button", class: "more", onclick: () => { open = true; show(); } }, label));
      }
      onShow(fitting);
    }
    function sort(head, column) {
      const isNumber = head.dataset.sort === "number";
      const [first, second] = isNumber ? ["descending", "ascending"] : ["ascending", "descending"];
      const order = head.getAttribute("aria-sort") === first ? second : first, sign = order === "ascending" ? 1 : -1;
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", order);
      const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      rows.sort((a, b) => {
        const [x, y] = [value(a), value(b)];
        if (x === "" || y === "") return (x === "") - (y === "");  // what is not known comes last
        return sign * (isNumber ? x - y : byName(x, y));
      });
      show();
    }
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      head.replaceChildren(make("button", { type: "button", onclick: () => sort(head, column) }, head.textContent));
    });
    if (field) field.oninput = show;
    show();
    return show;
  }
  for (const table of all("table")) enhance(table, { field: table.id ? $(`[data-filter="${table.id}"]`) : null });

  /**
   * Show a table with kernels or units down and architectures across. Of a row, `values` are by architecture, and
   * `inner` makes an element with its details. `full` is the number that fills a bar. Returns what shows it again.
   */
  function showMatrix(section, noun, columns, rows, { unit, show, full, isMarked = () => false, totalLabel, ...options }) {
    const known = (number, text) => number === null || number === undefined ? "–" : text(number);
    const most = full ?? (largest(rows.flatMap((row) => Object.values(row.values))) || 1);
    const widest = full ?? (largest(rows.map((row) => row.total)) || 1);
    function nameCell(row, element) {
      const where = [manyModules ? row.module : "", row.unit === row.name ? "" : row.unit].filter(Boolean).join(" · ");
      const small = where ? make("small", {}, where) : null;
      if (!row.inner) return make("th", { scope: "row" }, code(row.name), small);
      const toggle = (event) => {
        element.detail?.remove();
        element.detail = element.detail ? null : make("tr", { class: "inner" }, make("td", { colspan: columns.length + 2 }, row.inner()));
        if (element.detail) element.after(element.detail);
        event.currentTarget.setAttribute("aria-expanded", String(Boolean(element.detail)));
      };
      const mark = row.spilling.length ? make("span", { class: "spill", title: "spills registers" }, "▲") : null;
      return make("th", { scope: "row", class: "opens" },
        make("button", { type: "button", "aria-expanded": "false", onclick: toggle }, code(row.name), mark), small);
    }
    function numberCell(row, name) {
      const number = row.values[name], marked = number && isMarked(row, name);
      return make("td", {
        class: `cell ${marked ? "spills" : number ? "" : "quiet"}`, title: row.titles[name] ?? "not known",
        "data-value": number ?? "", style: { "--h": ((number ?? 0) / most).toFixed(3) },
      }, marked ? "▲ " : "", known(number, show), marked ? make("span", { class: "sr" }, " spills") : null);
    }
    function totalCell(row) {
      const width = `${(100 * row.total / widest).toFixed(2)}%`;
      return make("td", { class: "total", "data-value": row.total ?? "" }, make("span", {}, known(row.total, show)),
        row.total ? make("span", { class: "bar", "aria-hidden": "true" }, make("span", { style: { width } })) : null);
    }
    const head = (label, sort, className, order) => make("th", { scope: "col", class: className, "data-sort": sort, "aria-sort": order }, label);
    const body = [...rows].sort((a, b) => b.total - a.total || byName(a.name, b.name)).map((row) => {
      const element = make("tr");
      element.append(nameCell(row, element), ...columns.map((name) => numberCell(row, name)), totalCell(row));
      element.row = row;
      return element;
    });
    const table = make("table", { "data-limit": 25, "data-noun": `${noun}s`, "data-empty": `No ${noun} spills.` },
      make("thead", {}, make("tr", {}, head(noun[0].toUpperCase() + noun.slice(1), "text", ""),
        ...columns.map((name) => head(name, "number", "number")), head(totalLabel, "number", "number total", "descending"))),
      make("tbody", {}, ...body));
    $(".matrix", section).replaceChildren(make("div", {}, table));
    $("[data-unit]", section).textContent = unit ? `, in ${unit}` : "";
    return enhance(table, { field: $('input[type="search"]', section), ...options });
  }
  const columnsOf = (values) => architectures.filter((name) => values.some((value) => name in value));
  const mapValues = (object, change) => Object.fromEntries(Object.entries(object).map(([key, value]) => [key, change(value)]));

  if (units.length) {
    const section = $("#images"), columns = columnsOf(units.map((unit) => unit.sizes));
    const rows = units.map(({ module, unit, sizes }) => ({
      module, unit, name: unit, values: sizes,
      titles: mapValues(sizes, (size) => `${whole(size)} bytes`),
      total: Object.values(sizes).reduce((sum, size) => sum + size, 0),
    }));
    const sizes = bytesIn(largest(rows.flatMap((row) => Object.values(row.values))));
    /** Put the sums of the rows that fit above them. */
    const onShow = (fitting) => {
      if (fitting.length < 2) return;
      const sum = (value) => sizes.show(fitting.reduce((sum, { row }) => sum + (value(row) ?? 0), 0));
      $(".matrix tbody", section).prepend(make("tr", { class: "sum" }, make("th", { scope: "row" }, `All ${whole(fitting.length)}`),
        ...columns.map((name) => make("td", { class: "cell" }, sum((row) => row.values[name]))),
        make("td", { class: "total" }, make("span", {}, sum((row) => row.total)))));
    };
    showMatrix(section, "unit", columns, rows, { ...sizes, totalLabel: "All", onShow });
  }

  if (kernels.length) {
    const section = $("#kernels"), only = $("[data-spilling]", section), tabs = $(".tabs", section);
    const metrics = [
      { label: "Code size", field: "code", isSize: true }, { label: "Registers", field: "registers", full: 255, marksSpills: true },
      { label: "Spills", field: "spilled", isSize: true, marksSpills: true }, { label: "Stack", field: "stack", isSize: true },
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
    const columns = columnsOf(kernels.map((kernel) => kernel.usage));
    function draw({ field, isSize, full, marksSpills }) {
      const rows = kernels.map(({ module, unit, name, usage }) => {
        const values = mapValues(usage, (each) => each[field]), numbers = Object.values(values).filter((number) => number !== null);
        return {
          module, unit, name, values, titles: mapValues(usage, title), inner: () => inner(usage),
          total: numbers.length ? Math.max(...numbers) : null,
          spilling: Object.keys(usage).filter((architecture) => usage[architecture].spilled),
        };
      });
      const sizes = isSize ? bytesIn(largest(rows.map((row) => row.total))) : { unit: "", show: whole };
      only.onchange = showMatrix(section, "kernel", columns, rows, {
        ...sizes, full, totalLabel: "Largest", isMarked: (row, name) => marksSpills && row.spilling.includes(name),
        fits: ({ row }) => !only.checked || row.spilling.length,
      });
    }
    tabs.append(...metrics.map((metric, i) => make("button", {
      type: "button", "aria-pressed": String(!i),
      onclick: (event) => { press(tabs.children, event.currentTarget); draw(metric); },
    }, metric.label)));
    draw(metrics[0]);
  }

  const host = $("#lanes");
  if (!host) return;

  // The same jobs as in the timeline, as text; filled when it is opened.
  const table = $("#jobs");
  table.addEventListener("toggle", () => {
    if (table.dataset.filled) return;
    table.dataset.filled = "yes";
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
      class: `job ${job.outcome} ${isCubin(job.architecture) ? "cubin" : ""} ${job.action === "reflect" ? "half" : ""}`,
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
    const about = [manyModules ? job.module : "", job.architecture, job.action === "reflect" ? job.action : ""];
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
