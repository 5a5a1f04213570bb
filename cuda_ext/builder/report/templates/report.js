"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const whole = (number) => number.toLocaleString("en");
  const fixed = (number, digits) =>
    number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const seconds = (number) => number && number < 0.005 ? "<0.01 s" : `${fixed(number, 2)} s`;
  /** The text of a cell with a name, perhaps with its place. */
  const nameIn = (cell) => [cell].flat().join(" ");
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  function make(tag, attributes = {}, ...children) {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(...children);
    return element;
  }
  /** A long name, with line breaks where the page allows them. */
  const breakable = (name) =>
    make("code", {}, ...name.split(/(?<=[/,:<])/).flatMap((part) => [make("wbr"), part]).slice(1));

  for (const element of all("[data-needs-script]")) element.hidden = false;

  /** A row of a matrix, as the page writes the first ones. */
  function makeMatrixRow(metrics, [[name, where], ...columns]) {
    const spills = columns.flat().some(Array.isArray), totals = columns.pop();
    const names = [breakable(name), ...(spills ? [" ", make("span", { className: "spill", title: "spills registers" }, "▲")] : []),
      " ", make("small", {}, where)];
    const text = (metric, value) => value === null ? "–" : metric.format(value);
    function cell(metric, number) {
      if (Array.isArray(number)) return make("b", { className: "spills" }, number[1]);
      const style = number ? `--share:${(number / metric.most).toFixed(3)}` : "";
      const title = number && metric.scale > 1 ? `${whole(number)} bytes` : "";
      return make("b", { style, title }, text(metric, number));
    }
    function total(metric, number) {
      const style = `--share:${((number ?? 0) / metric.widest).toFixed(3)}`;
      return make("b", {}, make("i", { className: "bar", style }), " ", text(metric, number));
    }
    const unknown = () => [make("span", { className: "quiet", title: "not known" }, "–")];
    return make("tr", {},
      make("th", { scope: "row" }, ...(metrics.length > 1 ? [make("details", {}, make("summary", {}, ...names))] : names)),
      ...columns.map((numbers) => make("td", { className: "cell" },
        ...(numbers ? metrics.map((metric, i) => cell(metric, numbers[i])) : unknown()))),
      make("td", { className: "total" }, ...metrics.map((metric, i) => total(metric, totals[i]))));
  }
  /** A row of the table of compilations, as the page writes the first ones. */
  function makeJobRow([unit, architecture, action, outcome, worker, start, [, time]]) {
    const cell = (text, className = "") => make("td", { className }, text);
    return make("tr", {}, make("th", { scope: "row" }, breakable(unit)), cell(architecture), cell(action),
      cell(outcome, outcome.startsWith("✕") ? "change bad" : ""), cell(worker),
      cell(seconds(start), "number"), cell(time, "number"));
  }
  /** The rows of a table: the values of its cells, and what returns its element. */
  function rowsOf(table) {
    const elements = [...table.tBodies[0].rows], data = $(`[data-rows="${table.id}"]`);
    if (!data) {
      const value = (cell) => cell.dataset.value ?? cell.textContent.trim();
      return elements.map((element) => ({ element, cells: [...element.cells].map(value) }));
    }
    const { metrics, rows } = JSON.parse(data.textContent);
    for (const metric of metrics ?? []) {
      const digits = { minimumFractionDigits: metric.digits, maximumFractionDigits: metric.digits };
      const { format } = new Intl.NumberFormat("en", { ...digits, roundingMode: "halfEven" });
      metric.format = (number) => format(number / metric.scale);
    }
    return rows.map((cells, i) => ({
      cells,
      get element() { return elements[i] ??= metrics ? makeMatrixRow(metrics, cells) : makeJobRow(cells); },
    }));
  }

  // Rows that are added at a time: a browser lays out thousands in seconds.
  const STEP = 100;
  /** Sort a table by its heads, filter it by its field, and cut it short. */
  function enhance(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = rowsOf(table);
    const limit = Number(table.dataset.limit ?? Infinity), foot = make("div");
    const field = $(`[data-filter="${table.id}"]`), spilling = $(`[data-spilling="${table.id}"]`);
    const metrics = table.id === "kernel-table" ? all("[name=metric]") : [];
    let most = limit;  // rows in the page, which grows towards its end where all are to be shown
    table.parentElement.after(foot);

    const appending = new IntersectionObserver(([entry]) => entry.isIntersecting && show(most + STEP), { rootMargin: "1500px" });

    function show(count) {
      const words = (field?.value ?? "").toLowerCase();
      const fitting = rows.filter(({ cells: [name, ...numbers] }) => nameIn(name).toLowerCase().includes(words)
        && (!spilling?.checked || numbers.flat().some(Array.isArray)));
      most = count;
      const shown = fitting.slice(0, most).map((row) => row.element);
      const isLonger = shown.length > body.rows.length && shown[body.rows.length - 1] === body.lastElementChild;
      if (isLonger) body.append(...shown.slice(body.rows.length));
      else body.replaceChildren(...shown);
      if (!fitting.length) {
        const text = words ? `Nothing matches “${field.value}”.` : table.dataset.empty ?? "";
        body.insertRow().append(make("td", { colSpan: heads.length, className: "quiet" }, text));
      }
      foot.replaceChildren();
      appending.disconnect();
      if (shown.length < fitting.length && most > limit) appending.observe(foot);
      else if (shown.length < fitting.length) {
        const label = `Show all ${whole(fitting.length)} ${table.dataset.noun ?? "rows"}`;
        foot.append(make("button", { type: "button", className: "more", onclick: () => show(limit + STEP) }, label));
      }
    }
    /** Begin again with as many rows as one sees, whatever was shown before. */
    const restart = () => show(most > limit ? limit + STEP : limit);
    /** The value of a cell; one with a number for each metric has that of the chosen one. */
    function value(row, column) {
      const cell = row.cells[column];
      if (!column) return nameIn(cell);
      return Array.isArray(cell) ? [cell[Math.max(0, metrics.findIndex((metric) => metric.checked))]].flat()[0] : cell;
    }
    function sort(column, order) {
      const isNumber = heads[column].dataset.sort === "number", sign = order === "ascending" ? 1 : -1;
      for (const head of heads) head.removeAttribute("aria-sort");
      heads[column].setAttribute("aria-sort", order);
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        const [lacksX, lacksY] = [x, y].map((each) => [null, "", "–"].includes(each));  // these come last
        if (lacksX || lacksY) return lacksX - lacksY;
        return sign * (isNumber ? x - y : byName(x, y));
      });
      restart();
    }
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      const orders = ["ascending", "descending"];
      if (head.dataset.sort === "number") orders.reverse();
      const onclick = () => sort(column, head.getAttribute("aria-sort") === orders[0] ? orders[1] : orders[0]);
      head.replaceChildren(make("button", { type: "button", onclick }, head.textContent));
    });
    for (const metric of metrics) metric.onchange = () => sort(heads.length - 1, "descending");
    for (const input of [field, spilling]) input?.addEventListener("input", restart);
    show(limit);
  }
  all("table").forEach(enhance);

  const host = $(".lanes");
  if (!host) return;

  /** Fade all jobs but those of a button in the legend, unless it is pressed already. */
  function highlight(button) {
    const chosen = button?.getAttribute("aria-pressed") === "false" ? button : null;
    for (const other of all(".legend button")) other.setAttribute("aria-pressed", String(other === chosen));
    for (const job of all(".job", host)) job.classList.toggle("faded", chosen && !job.classList.contains(chosen.value));
  }
  for (const button of all(".legend button")) button.onclick = () => highlight(button);
  for (const input of all("[name=colour]")) input.onchange = () => highlight(null);

  // The timeline: its track is wider than the part in view by the zoom factor.
  const end = Number(host.dataset.seconds), scroller = $(".scroller"), track = $(".track"), range = $(".range");
  const percent = (seconds) => `${(100 * seconds / end).toFixed(4)}%`;
  let zoom = 1;

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
    const width = scroller.clientWidth, from = end * scroller.scrollLeft / track.clientWidth, to = from + end / zoom;
    const unit = step(to - from, Math.max(2, Math.floor(width / 85))), ticks = [];
    for (let i = Math.max(0, Math.ceil(from / unit - 1e-9)); i * unit <= to * (1 + 1e-9); i++) {
      ticks.push(make("span", { style: `left:${percent(i * unit)}` }, tickLabel(i * unit, unit)));
    }
    $(".axis").replaceChildren(...ticks);
  }
  /** Show `span` seconds from `start`. */
  function show(start, span) {
    zoom = Math.min(Math.max(end / span, 1), Math.max(end * 1e3, 1));
    track.style.width = `${100 * zoom}%`;
    scroller.scrollLeft = start / end * track.clientWidth;
    drawAxis();
  }
  /** Show `factor` times as many seconds, with `fixedPoint` at the same place. */
  function scale(factor, fixedPoint = null) {
    const start = end * scroller.scrollLeft / track.clientWidth, span = end / zoom;
    const about = fixedPoint ?? start + span / 2;
    show(about - (about - start) * factor, span * factor);
  }
  /** The time at which `event` points. */
  function timeAt(event) {
    const box = track.getBoundingClientRect();
    return Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * end;
  }

  let dragged = null;
  const isRange = (event) => dragged && Math.abs(event.clientX - dragged.x) > 3;
  const sides = (event) => [dragged.time, timeAt(event)].sort((a, b) => a - b);
  const listeners = {
    pointerdown(event) {
      if (event.button || event.pointerType !== "mouse" || event.offsetY > scroller.clientHeight) return;
      dragged = { x: event.clientX, time: timeAt(event) };
      scroller.setPointerCapture(event.pointerId);
    },
    pointermove(event) {
      range.hidden = !isRange(event);
      if (range.hidden) return;
      const [from, to] = sides(event);
      Object.assign(range.style, { left: percent(from), width: percent(to - from) });
    },
    pointerup(event) {
      if (isRange(event)) {
        const [from, to] = sides(event);
        show(from, to - from);
      }
      listeners.pointercancel();
    },
    pointercancel() {
      dragged = null;
      range.hidden = true;
    },
    dblclick: () => show(0, end),
    scroll: drawAxis,
    keydown(event) {
      const actions = { "+": () => scale(0.6), "=": () => scale(0.6), "-": () => scale(1 / 0.6), 0: () => show(0, end), Home: () => show(0, end) };
      if (!actions[event.key] || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      actions[event.key]();
    },
  };
  for (const [name, listener] of Object.entries(listeners)) scroller.addEventListener(name, listener);
  scroller.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    scale(Math.exp(event.deltaY / 300), timeAt(event));
  }, { passive: false });
  const zooms = { in: () => scale(0.5), out: () => scale(2), all: () => show(0, end) };
  for (const button of all("[data-zoom]")) button.onclick = zooms[button.dataset.zoom];
  window.addEventListener("resize", drawAxis);
  drawAxis();
})();
