"use strict";
(() => {
  const parse = (id) => JSON.parse(document.getElementById(id).textContent);
  const record = parse("cuda-ext-record"), view = parse("cuda-ext-view");
  const text = (index) => record.strings[index];
  const jobs = record.jobs.map(([module, unit, architecture, action, outcome, worker, start, duration]) => ({
    module: text(module), unit: text(unit), architecture: text(architecture), action: text(action),
    outcome: text(outcome), worker: text(worker), start, duration,
  }));
  const images = record.images.map(([module, unit, architecture, size]) => ({
    module: text(module), unit: text(unit), architecture: text(architecture), size,
  }));
  const kernels = record.kernels.map(
    ([module, unit, kernel, architecture, code, registers, stores, loads, stack, shared, constant]) => ({
      module: text(module), unit: text(unit), kernel: text(kernel), architecture: text(architecture),
      code, registers, stores, loads, stack, shared, constant,
      spills: stores === null && loads === null ? null : (stores ?? 0) + (loads ?? 0),
    }));
  const manyModules = new Set(images.map((image) => image.module)).size > 1;

  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
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
  /** Long names, broken where people would break them. */
  const code = (name) => make("code", {}, ...name.split(/(?<=[/,:<])/).flatMap((part, i) => i ? [make("wbr"), part] : [part]));
  const group = (items, key) => {
    const found = new Map();
    for (const item of items) found.has(key(item)) ? found.get(key(item)).push(item) : found.set(key(item), [item]);
    return found;
  };
  const whole = (number) => number.toLocaleString("en");
  const fixed = (number, digits) =>
    number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  function duration(seconds) {
    if (seconds >= 59.95) return `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s`;
    if (seconds >= 0.9995) return `${fixed(seconds, seconds < 10 ? 2 : 1)} s`;
    return `${fixed(seconds * 1000, seconds < 0.00995 ? 1 : 0)} ms`;
  }
  /** One unit for a whole table, so that its numbers can be compared at a glance. */
  function bytesIn(most) {
    const [unit, scale, digits] = most >= 1e7 ? ["MB", 1e6, 2] : most >= 1e4 ? ["kB", 1e3, 1] : ["bytes", 1, 0];
    return { unit, show: (value) => fixed(value / scale, digits) };
  }
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  // Spreading into Math.max ends at some ten thousand numbers.
  const largest = (numbers) => numbers.reduce((most, number) => Math.max(most, number ?? 0), 0);
  const collapse = (rows, limit, redraw, noun) => rows.length > limit
    ? make("button", { type: "button", class: "more", onclick: redraw }, `Show all ${whole(rows.length)} ${noun}`)
    : null;

  for (const element of all("[data-needs-script]")) element.hidden = false;

  // Tables that the page came with: sorted by their heads, filtered by their first column, long ones cut short.
  for (const table of all("table")) {
    const body = table.tBodies[0], rows = [...body.rows], heads = [...table.tHead.rows[0].cells];
    const limit = Number(table.dataset.limit ?? Infinity);
    const field = table.id ? $(`[data-filter="${table.id}"]`) : null;
    let open = false;
    const none = make("p", { class: "empty", hidden: true });
    table.parentElement.after(none);
    let more = null;
    const show = () => {
      const words = field ? field.value.toLowerCase() : "";
      const fitting = [...body.rows].filter((row) => row.textContent.toLowerCase().includes(words));
      for (const row of rows) row.hidden = true;
      fitting.forEach((row, i) => { row.hidden = !open && i >= limit; });
      more?.remove();
      more = open ? null : collapse(fitting, limit, () => { open = true; show(); }, "rows");
      if (more) table.parentElement.after(more);
      none.hidden = fitting.length > 0 || !rows.length;
      none.textContent = `Nothing here is called “${field?.value}”.`;
    };
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      const number = head.dataset.sort === "number";
      const label = head.textContent;
      head.replaceChildren(make("button", {
        type: "button",
        onclick: () => {
          const first = number ? "descending" : "ascending", second = number ? "ascending" : "descending";
          const order = head.getAttribute("aria-sort") === first ? second : first;
          for (const other of heads) other.removeAttribute("aria-sort");
          head.setAttribute("aria-sort", order);
          const sign = order === "ascending" ? 1 : -1;
          const value = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
          rows.sort((a, b) => sign * (number ? value(a) - value(b) : byName(value(a), value(b))));
          body.append(...rows);
          show();
        },
      }, label));
    });
    field?.addEventListener("input", show);
    show();
  }

  // Kernels or units down, architectures across.
  function matrix(section, noun, columns) {
    const host = $(".matrix", section), search = $('input[type="search"]', section), unit = $("[data-unit]", section);
    if (!host) return () => {};
    let content = null, sorted = { by: "total", sign: -1 }, open = false;
    const opened = new Set();
    const body = make("tbody");
    const foot = make("div");
    const head = make("tr");
    host.append(make("div", {}, make("table", {}, make("thead", {}, head), body)), foot);
    const value = (row, by) => by === "name" ? row.name : by === "total" ? row.total : row.values.get(by) ?? null;
    const total = () => content.add ? "All" : "Largest";

    function heads() {
      const button = (by, label, className) => make("th", {
        scope: "col", class: className,
        "aria-sort": sorted.by === by ? (sorted.sign < 0 ? "descending" : "ascending") : null,
      }, make("button", {
        type: "button",
        onclick: () => {
          sorted = sorted.by === by ? { by, sign: -sorted.sign } : { by, sign: by === "name" ? 1 : -1 };
          draw();
          $(`[data-by="${by}"]`, head)?.focus();
        },
        "data-by": by,
      }, label));
      head.replaceChildren(
        button("name", noun[0].toUpperCase() + noun.slice(1), ""),
        ...columns.map((name) => button(name, name, "number")),
        button("total", total(), "number total"),
      );
    }
    function cells(row, most) {
      return columns.map((name) => {
        const number = row.values.get(name) ?? null;
        if (number === null) return make("td", { class: "cell quiet", title: row.titles?.get(name) ?? "not known" }, "–");
        const spills = content.spills?.(row, name);
        return make("td", {
          class: spills ? "cell spills" : number ? "cell" : "cell quiet", title: row.titles?.get(name),
          style: { "--h": (content.full ? number / content.full : number / (most || 1)).toFixed(3) },
        }, spills ? "▲ " : "", content.show(number), spills ? make("span", { class: "sr" }, " spills") : null);
      });
    }
    function draw() {
      heads();
      const words = (search?.value ?? "").toLowerCase();
      const rows = content.rows.filter((row) => `${row.name} ${row.unit} ${row.module}`.toLowerCase().includes(words));
      rows.sort((a, b) => {
        const [x, y] = [value(a, sorted.by), value(b, sorted.by)];
        if (x === null || y === null) return (x === null) - (y === null);
        return sorted.sign * (sorted.by === "name" ? byName(x, y) : x - y) || byName(a.name, b.name);
      });
      const most = largest(content.rows.flatMap((row) => [...row.values.values()]));
      const widest = largest(content.rows.map((row) => row.total));
      const limit = 25;
      body.replaceChildren();
      if (content.add && rows.length > 1) {
        const sum = (by) => rows.reduce((sum, row) => sum + (value(row, by) ?? 0), 0);
        body.append(make("tr", { class: "sum" }, make("th", { scope: "row" }, `All ${whole(rows.length)}`),
          ...columns.map((name) => make("td", { class: "cell" }, content.show(sum(name)))),
          make("td", { class: "total" }, make("span", {}, content.show(sum("total"))))));
      }
      for (const row of open ? rows : rows.slice(0, limit)) {
        const id = `${noun}-${content.rows.indexOf(row)}`;
        const where = [manyModules ? row.module : "", row.unit === row.name ? "" : row.unit].filter(Boolean).join(" · ");
        const label = [code(row.name), row.spilling ? make("span", { class: "spill", title: "spills registers" }, "▲") : null];
        body.append(make("tr", {}, make("th", { scope: "row", class: row.inner ? "opens" : "" },
          row.inner ? make("button", {
            type: "button", "aria-expanded": String(opened.has(row.key)), "aria-controls": id,
            onclick: (event) => {
              opened.has(row.key) ? opened.delete(row.key) : opened.add(row.key);
              draw();
              $(`[aria-controls="${id}"]`, body)?.focus();
            },
          }, ...label) : label[0],
          where ? make("small", {}, where) : null),
        ...cells(row, most),
        make("td", { class: "total" },
          make("span", {}, row.total === null ? "–" : content.show(row.total)),
          !row.total ? null : make("span", { class: "bar", "aria-hidden": "true" },
            make("span", { style: { width: `${(100 * row.total / (content.full ?? (widest || 1))).toFixed(2)}%` } })))));
        if (row.inner && opened.has(row.key)) {
          body.append(make("tr", { class: "inner", id }, make("td", { colspan: columns.length + 2 }, row.inner())));
        }
      }
      if (!rows.length) {
        body.append(make("tr", {}, make("td", { colspan: columns.length + 2, class: "quiet" },
          words ? `Nothing here is called “${search.value}”.` : `No ${noun} spills.`)));
      }
      if (unit) unit.textContent = content.unit ? `, in ${content.unit}` : "";
      foot.replaceChildren(...[open ? null : collapse(rows, limit, () => { open = true; draw(); }, `${noun}s`)].filter(Boolean));
    }
    search?.addEventListener("input", draw);
    return (next) => { content = next; draw(); };
  }
  const having = (items) => view.architectures.filter((name) => items.some((item) => item.architecture === name));

  {
    const rows = [...group(images, (image) => `${image.module}\n${image.unit}`)].map(([key, found]) => ({
      key, module: found[0].module, name: found[0].unit, unit: found[0].unit,
      values: new Map(found.map((image) => [image.architecture, image.size])),
      titles: new Map(found.map((image) => [image.architecture, `${whole(image.size)} bytes`])),
      total: found.reduce((sum, image) => sum + image.size, 0),
    }));
    const sizes = bytesIn(largest(images.map((image) => image.size)));
    matrix($("#images"), "unit", having(images))({ rows, add: true, unit: sizes.unit, show: sizes.show });
  }

  if (kernels.length) {
    const section = $("#kernels"), only = $("[data-spilling]", section), tabs = $(".tabs", section);
    const metrics = [
      ["Code size", (kernel) => kernel.code, "bytes"], ["Registers", (kernel) => kernel.registers, "", 255],
      ["Spills", (kernel) => kernel.spills, "bytes"], ["Stack", (kernel) => kernel.stack, "bytes"],
      ["Shared memory", (kernel) => kernel.shared, "bytes"], ["Constant memory", (kernel) => kernel.constant, "bytes"],
    ];
    const known = (number, show = whole) => number === null ? "–" : show(number);
    const inner = (found) => () => make("table", {},
      make("thead", {}, make("tr", {}, ...["Architecture", "Code", "Registers", "Spill stores", "Spill loads", "Stack", "Shared", "Constant"]
        .map((name, i) => make("th", { scope: "col", class: i ? "number" : "" }, name)))),
      make("tbody", {}, ...found.map((kernel) => make("tr", {}, make("th", { scope: "row" }, kernel.architecture),
        ...[kernel.code, kernel.registers, kernel.stores, kernel.loads, kernel.stack, kernel.shared, kernel.constant]
          .map((number) => make("td", { class: "number" }, known(number)))))));
    const title = (kernel) => `${whole(kernel.code)} bytes of code, ${known(kernel.registers)} registers, ` +
      `${known(kernel.spills)} bytes spilled, ${known(kernel.stack)} stack, ${known(kernel.shared)} shared`;
    const groups = [...group(kernels, (kernel) => `${kernel.module}\n${kernel.unit}\n${kernel.kernel}`)];
    const order = new Map(view.architectures.map((name, i) => [name, i]));
    for (const [, found] of groups) found.sort((a, b) => order.get(a.architecture) - order.get(b.architecture));
    const show = matrix(section, "kernel", having(kernels));
    let metric = metrics[0];
    function draw() {
      const [, value, unit, full] = metric;
      const rows = groups.map(([key, found]) => {
        const numbers = found.map(value).filter((number) => number !== null);
        return {
          key, module: found[0].module, unit: found[0].unit, name: found[0].kernel, inner: inner(found),
          values: new Map(found.map((kernel) => [kernel.architecture, value(kernel)])),
          titles: new Map(found.map((kernel) => [kernel.architecture, title(kernel)])),
          spilling: found.filter((kernel) => kernel.spills).map((kernel) => kernel.architecture),
          total: numbers.length ? Math.max(...numbers) : null,
        };
      }).map((row) => ({ ...row, spilling: row.spilling.length ? row.spilling : null }));
      const sizes = bytesIn(largest(kernels.map(value)));
      show({
        rows: only.checked ? rows.filter((row) => row.spilling) : rows, full,
        unit: unit ? sizes.unit : "", show: unit ? sizes.show : whole,
        spills: (row, name) => (metric === metrics[1] || metric === metrics[2]) && row.spilling?.includes(name),
      });
    }
    tabs.append(...metrics.map((each) => make("button", {
      type: "button", "aria-pressed": String(each === metric),
      onclick: (event) => {
        metric = each;
        for (const button of tabs.children) button.setAttribute("aria-pressed", String(button === event.currentTarget));
        draw();
      },
    }, each[0])));
    only.addEventListener("change", draw);
    draw();
  }

  const canvas = $("#lanes");
  if (!canvas) return;

  // The same jobs as the timeline has, for those who read rather than look; made when it is asked for.
  const details = $("#jobs");
  details.addEventListener("toggle", () => {
    const host = $("div", details);
    if (host.childElementCount) return;
    const number = (value, shown) => make("td", { class: "number" }, shown);
    const columns = [
      ["Unit", (job) => job.unit], ["Architecture", (job) => job.architecture], ["Action", (job) => job.action],
      ["Outcome", (job) => job.outcome], ["Worker", (job) => job.worker || view.cache],
      ["Start", (job) => job.start], ["Time", (job) => job.duration],
    ];
    let by = 6, sign = -1, open = false;
    const draw = () => {
      const value = columns[by][1];
      const rows = [...jobs].sort((a, b) => sign * (by > 4 ? value(a) - value(b) : byName(value(a), value(b))));
      host.replaceChildren(make("div", { class: "scroll" }, make("table", {},
        make("thead", {}, make("tr", {}, ...columns.map(([name], i) => make("th", {
          scope: "col", class: i > 4 ? "number" : "", "aria-sort": i === by ? (sign < 0 ? "descending" : "ascending") : null,
        }, make("button", {
          type: "button",
          onclick: () => { sign = i === by ? -sign : i > 4 ? -1 : 1; by = i; draw(); all("thead button", host)[i].focus(); },
        }, name))))),
        make("tbody", {}, ...(open ? rows : rows.slice(0, 20)).map((job) => make("tr", {},
          make("th", { scope: "row" }, code(job.unit)), make("td", {}, job.architecture), make("td", {}, job.action),
          make("td", {}, job.outcome === "failed" ? make("span", { class: "change bad" }, "✕ failed") : job.outcome),
          make("td", {}, job.worker || view.cache),
          number(job.start, `${fixed(job.start, 2)} s`), number(job.duration, job.outcome === "cached" ? "–" : duration(job.duration))))))),
      ...[open ? null : collapse(rows, 20, () => { open = true; draw(); }, "compilations")].filter(Boolean));
    };
    draw();
  });

  // The timeline.
  const context = canvas.getContext("2d"), tooltip = $("#tooltip"), legend = $("#legend");
  const end = Math.max(record.duration, largest(jobs.map((job) => job.start + job.duration)), 1e-3);
  const lanes = view.lanes.map(([name, indices]) => ({ name, cache: name === view.cache, jobs: indices.map((i) => jobs[i]) }));
  const number = new Map(jobs.map((job, i) => [job, i]));
  const AXIS = 26, GAP = 4, PAD = 10;
  let from = 0, to = end, colour = "architecture", chosen = null, hovered = null, drag = null, shapes = [];

  const used = view.architectures.filter((name) => jobs.some((job) => job.architecture === name));
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  function palette() {
    // Cubins from violet to green, the newer the lighter; PTX and LTO-IR in warm colours.
    const light = Number(css("--light")), cubins = used.filter((name) => name.startsWith("sm_"));
    const shade = (name) => {
      const cubin = name.startsWith("sm_"), same = used.filter((other) => other.startsWith("sm_") === cubin);
      const along = same.length > 1 ? same.indexOf(name) / (same.length - 1) : cubin && cubins.length > 1 ? 0.5 : 0;
      return cubin ? [light + 0.18 * along, 0.12, 290 - 130 * along] : [light + 0.28 - 0.08 * along, 0.115, 88 - 26 * along];
    };
    const shades = new Map(used.map((name) => [name, shade(name)]));
    return {
      architectures: new Map([...shades].map(([name, [l, c, h]]) => [name, `oklch(${l.toFixed(3)} ${c} ${h.toFixed(1)})`])),
      labels: new Map([...shades].map(([name, [l]]) => [name, l < 0.585 ? "#fff" : "#0b0d11"])),
      outcomes: new Map([["compiled", css("--accent")], ["cached", css("--grey")], ["failed", css("--bad")]]),
      ink: css("--ink"), soft: css("--soft"), quiet: css("--quiet"), line: css("--line"), faint: css("--faint"),
      surface: css("--surface"), bad: css("--bad"), grey: css("--grey"), on: css("--on-bar"),
    };
  }
  const written = (job) => colour === "architecture" && job.outcome !== "failed"
    ? colours.labels.get(job.architecture) : colours.on;
  let colours = palette();
  const key = (job) => colour === "architecture" ? job.architecture : job.outcome;
  const fill = (job) => job.outcome === "failed" ? colours.bad
    : colour === "architecture" ? colours.architectures.get(job.architecture) : colours.outcomes.get(job.outcome);

  function drawLegend() {
    const entries = colour === "architecture" ? [...colours.architectures] : [...colours.outcomes];
    legend.replaceChildren(...entries.map(([name, shade]) => {
      const count = jobs.filter((job) => key(job) === name).length;
      return count ? make("button", {
        type: "button", "aria-pressed": String(chosen === name),
        onclick: () => { chosen = chosen === name ? null : name; drawLegend(); draw(); },
      }, make("i", { class: "swatch", style: { background: shade } }), name, make("small", { class: "quiet" }, whole(count))) : "";
    }));
    if (colour === "architecture" && jobs.some((job) => job.outcome === "failed")) {
      legend.append(make("button", { type: "button", disabled: "" }, make("i", { class: "swatch failed" }), "✕ failed"));
    }
    legend.classList.toggle("chosen", chosen !== null);
  }
  function step(span, count) {
    const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
    const clock = [15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200];
    if (rough > 10) return clock.find((unit) => unit >= rough) ?? 86400 * Math.ceil(rough / 86400);
    return power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  }
  function tick(seconds, unit) {
    const digits = Math.max(0, -Math.floor(Math.log10(unit) + 1e-9));
    if (unit >= 60 || (end >= 120 && unit >= 1)) {
      return `${Math.floor(seconds / 60)}:${String(Math.round(seconds % 60)).padStart(2, "0")}`;
    }
    return end < 1 ? `${fixed(seconds * 1000, Math.max(0, digits - 3))} ms` : `${fixed(seconds, digits)} s`;
  }
  const sizes = () => {
    const width = canvas.parentElement.clientWidth, narrow = width < 560;
    const workers = lanes.filter((lane) => !lane.cache).length;
    const height = workers <= 4 ? 40 : workers <= 12 ? 26 : 16;
    const longest = Math.max(...lanes.map((lane) => label(lane).length));
    return { width, left: Math.min(longest * 7.2 + 22, narrow ? 76 : 190), height, right: width - 12 };
  };
  const label = (lane) => lane.cache ? "cache" : /^\d/.test(lane.name) ? `worker ${lane.name}` : lane.name.replace(/^tcp:\/\//, "") || "worker";
  function shorten(name, width) {
    if (context.measureText(name).width <= width) return name;
    for (let length = name.length - 1; length > 1; length--) {
      const short = `${name.slice(0, length)}…`;
      if (context.measureText(short).width <= width) return short;
    }
    return "";
  }
  function draw() {
    const { width, left, height, right } = sizes();
    const laneHeight = (lane) => lane.cache ? 18 : height;
    const total = AXIS + PAD + lanes.reduce((sum, lane) => sum + laneHeight(lane) + GAP, 0) + PAD;
    const scale = window.devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(total * scale);
    canvas.style.height = `${total}px`;
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.clearRect(0, 0, width, total);
    const family = getComputedStyle(document.body).fontFamily;
    const x = (seconds) => left + (seconds - from) / (to - from) * (right - left);
    shapes = [];

    context.textBaseline = "middle";
    context.font = `12px ${family}`;
    const unit = step(to - from, Math.max(2, Math.floor((right - left) / 85)));
    for (let i = Math.max(0, Math.ceil(from / unit - 1e-9)); i * unit <= to * (1 + 1e-9); i++) {
      const at = Math.round(x(i * unit)) + 0.5;
      context.fillStyle = colours.line;
      context.fillRect(at - 0.5, AXIS, 1, total - AXIS);
      const shown = tick(i * unit, unit), wide = context.measureText(shown).width;
      context.fillStyle = colours.quiet;
      context.fillText(shown, Math.max(left, Math.min(at - wide / 2, right - wide)), AXIS / 2 + 2);
    }
    let y = AXIS + PAD;
    for (const lane of lanes) {
      const tall = laneHeight(lane);
      context.fillStyle = colours.faint;
      context.fillRect(left, y, right - left, tall);
      context.font = `12px ${family}`;
      context.fillStyle = colours.soft;
      context.fillText(shorten(label(lane), left - 20), 12, y + tall / 2);
      context.save();
      context.beginPath();
      context.rect(left, y, right - left, tall);
      context.clip();
      for (const job of lane.jobs) {
        if (job.start > to || job.start + job.duration < from) continue;
        const begin = x(job.start), stop = x(job.start + job.duration);
        const across = lane.cache ? 2 : Math.max(stop - begin - (stop - begin > 4 ? 1 : 0), 0.75);
        const half = job.action === "survey" && !lane.cache ? tall / 2 : 0;
        context.globalAlpha = chosen !== null && key(job) !== chosen ? 0.13 : 1;
        context.fillStyle = fill(job);
        context.beginPath();
        context.roundRect(begin, y + half, across, tall - half, across > 8 ? 3 : 0);
        context.fill();
        if (job === hovered) {
          context.globalAlpha = 1;
          context.strokeStyle = colours.ink;
          context.lineWidth = 2;
          context.stroke();
        }
        if (tall >= 16 && across > 34 && !half) {
          const seen = Math.max(begin, left), room = Math.min(begin + across, right) - seen - 12;
          context.fillStyle = written(job);
          context.font = `550 11.5px ${family}`;
          const mark = job.outcome === "failed" ? "✕ " : "";
          const name = `${mark}${job.unit.split("/").pop().replace(/(?<=.)\.[^.]*$/, "")}`;
          if (tall >= 36) {
            if (room > 24) context.fillText(shorten(name, room), seen + 6, y + tall / 2 - 7);
            context.font = `11.5px ${family}`;
            if (room > 24) context.fillText(shorten(job.architecture, room), seen + 6, y + tall / 2 + 8);
          } else if (room > 24) context.fillText(shorten(`${name} ${job.architecture}`, room), seen + 6, y + tall / 2 + 0.5);
        } else if (job.outcome === "failed" && across > 8) {
          context.fillStyle = colours.on;
          context.font = `600 11px ${family}`;
          context.fillText("✕", begin + across / 2 - 4, y + (tall + half) / 2);
        }
        shapes.push({ job, x: begin, width: across, y, height: tall });
      }
      context.restore();
      y += tall + GAP;
    }
    context.globalAlpha = 1;
    if (drag?.now !== undefined && Math.abs(drag.now - drag.start) > 3) {
      context.fillStyle = colours.ink;
      context.globalAlpha = 0.1;
      context.fillRect(Math.min(drag.start, drag.now), AXIS, Math.abs(drag.now - drag.start), total - AXIS);
      context.globalAlpha = 1;
    }
    if (to - from < end * 0.999) {
      context.fillStyle = colours.grey;
      context.fillRect(left + from / end * (right - left), 0, Math.max(6, (to - from) / end * (right - left)), 3);
    }
  }
  let waiting = false;
  const redraw = () => {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; draw(); });
  };
  function show(start, span) {
    const least = Math.min(end, 1e-3);
    span = Math.min(Math.max(span, least), end);
    from = Math.min(Math.max(start, 0), end - span);
    to = from + span;
    redraw();
  }
  const zoom = (factor, about = (from + to) / 2) => show(about - (about - from) * factor, (to - from) * factor);
  const seconds = (offset) => {
    const { left, right } = sizes();
    return from + (Math.min(Math.max(offset, left), right) - left) / (right - left) * (to - from);
  };
  function under(event) {
    const box = canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    let best = null, nearest = 4;
    for (const shape of shapes) {
      if (y < shape.y || y > shape.y + shape.height) continue;
      const away = Math.max(shape.x - x, x - shape.x - shape.width, 0);
      if (away < nearest) [best, nearest] = [shape.job, away];
    }
    return best;
  }
  function explain(job, event) {
    const phases = [...view.jobs[number.get(job)] ?? []].sort((a, b) => b[1] - a[1]).slice(0, 5);
    const line = (name, shown) => make("tr", {}, make("th", { scope: "row" }, name), make("td", { class: "number" }, shown));
    tooltip.replaceChildren(
      make("strong", {}, job.unit),
      make("span", { class: "quiet" }, `${manyModules ? `${job.module} · ` : ""}${job.architecture}${job.action === "survey" ? " · survey" : ""}`),
      make("table", {}, make("tbody", {},
        job.outcome === "cached" ? line("From the cache", `at ${duration(job.start)}`)
          : line(job.outcome === "failed" ? "✕ Failed after" : "Compiled in", duration(job.duration)),
        ...(job.outcome === "cached" ? [] : [line("Started at", `${fixed(job.start, 2)} s`)]),
        ...phases.map(([phase, time]) => line(view.phases[phase], duration(time))))),
    );
    tooltip.hidden = false;
    const box = tooltip.getBoundingClientRect();
    const right = event.clientX + 14 + box.width > window.innerWidth - 8;
    const x = right ? Math.max(8, event.clientX - 14 - box.width) : event.clientX + 14;
    const y = Math.min(event.clientY + 16, window.innerHeight - box.height - 8);
    tooltip.style.transform = `translate(${Math.round(x)}px, ${Math.round(Math.max(8, y))}px)`;
  }
  const leave = () => {
    tooltip.hidden = true;
    if (hovered) { hovered = null; redraw(); }
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    drag = { start: event.offsetX };
    canvas.setPointerCapture(event.pointerId);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (drag) {
      drag.now = event.offsetX;
      if (Math.abs(drag.now - drag.start) > 3) { leave(); redraw(); return; }
    }
    const job = under(event);
    if (!job) return leave();
    if (job !== hovered) { hovered = job; redraw(); }
    explain(job, event);
  });
  canvas.addEventListener("pointerup", () => {
    const done = drag;
    drag = null;
    if (done?.now !== undefined && Math.abs(done.now - done.start) > 3) {
      const [a, b] = [seconds(done.start), seconds(done.now)];
      show(Math.min(a, b), Math.abs(b - a));
    }
  });
  canvas.addEventListener("pointercancel", () => { drag = null; redraw(); });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("dblclick", () => show(0, end));
  canvas.addEventListener("wheel", (event) => {
    if (event.ctrlKey || event.metaKey) {
      event.preventDefault();
      zoom(Math.exp(event.deltaY / 300), seconds(event.offsetX));
    } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) && to - from < end) {
      event.preventDefault();
      show(from + event.deltaX * (to - from) / 800, to - from);
    }
  }, { passive: false });
  canvas.addEventListener("keydown", (event) => {
    const moves = {
      ArrowLeft: () => show(from - (to - from) / 8, to - from), ArrowRight: () => show(from + (to - from) / 8, to - from),
      "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), 0: () => show(0, end), Home: () => show(0, end),
    };
    if (moves[event.key] && !event.ctrlKey && !event.metaKey) { event.preventDefault(); moves[event.key](); }
  });
  for (const button of all("[data-zoom]")) {
    button.addEventListener("click", () => ({ in: () => zoom(0.5), out: () => zoom(2), all: () => show(0, end) })[button.dataset.zoom]());
  }
  for (const button of all("[data-colour]")) {
    button.addEventListener("click", () => {
      [colour, chosen] = [button.dataset.colour, null];
      for (const other of all("[data-colour]")) other.setAttribute("aria-pressed", String(other === button));
      drawLegend();
      draw();
    });
  }
  const repaint = () => { colours = palette(); drawLegend(); draw(); };
  window.addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);
  // Paper is white.
  window.addEventListener("beforeprint", () => { document.documentElement.classList.add("printing"); repaint(); });
  window.addEventListener("afterprint", () => { document.documentElement.classList.remove("printing"); repaint(); });
  repaint();
})();
