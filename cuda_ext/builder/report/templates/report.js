"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const whole = (number) => number.toLocaleString("en");
  const fixed = (number, digits) =>
    number.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  const byName = new Intl.Collator("en", { numeric: true }).compare;
  function make(tag, attributes = {}, text = "") {
    const element = Object.assign(document.createElement(tag), attributes);
    element.append(text);
    return element;
  }

  for (const element of all("[data-needs-script]")) element.hidden = false;

  /** Sort a table by its heads, filter it by its field, and cut it short. */
  function enhance(table) {
    const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells], rows = [...body.rows];
    const limit = Number(table.dataset.limit ?? Infinity), foot = make("div");
    const field = $(`[data-filter="${table.id}"]`), spilling = $(`[data-spilling="${table.id}"]`);
    const metrics = table.id === "kernel-table" ? all("[name=metric]") : [];
    let open = false;
    table.parentElement.after(foot);

    function show() {
      const words = (field?.value ?? "").toLowerCase();
      const fitting = rows.filter((row) => row.cells[0].textContent.toLowerCase().includes(words)
        && (!spilling?.checked || "spills" in row.dataset));
      const shown = open ? fitting : fitting.slice(0, limit);
      body.replaceChildren(...shown);
      if (!fitting.length) {
        const text = words ? `Nothing matches “${field.value}”.` : table.dataset.empty ?? "";
        body.insertRow().append(make("td", { colSpan: heads.length, className: "quiet" }, text));
      }
      foot.replaceChildren();
      if (shown.length < fitting.length) {
        const label = `Show all ${whole(fitting.length)} ${table.dataset.noun ?? "rows"}`;
        foot.append(make("button", { type: "button", className: "more", onclick: () => { open = true; show(); } }, label));
      }
    }
    /** The value of a cell; one with a number for each metric has that of the chosen one. */
    function value(row, column) {
      const cell = row.cells[column], numbers = all(":scope > b", cell);
      const shown = numbers[metrics.findIndex((metric) => metric.checked)] ?? numbers[0] ?? cell;
      return shown.dataset.value ?? shown.textContent.trim();
    }
    function sort(column, order) {
      const isNumber = heads[column].dataset.sort === "number", sign = order === "ascending" ? 1 : -1;
      for (const head of heads) head.removeAttribute("aria-sort");
      heads[column].setAttribute("aria-sort", order);
      rows.sort((a, b) => {
        const [x, y] = [value(a, column), value(b, column)];
        const [lacksX, lacksY] = [x, y].map((each) => each === "" || each === "–");  // these come last
        if (lacksX || lacksY) return lacksX - lacksY;
        return sign * (isNumber ? x - y : byName(x, y));
      });
      show();
    }
    heads.forEach((head, column) => {
      if (!head.dataset.sort) return;
      const orders = ["ascending", "descending"];
      if (head.dataset.sort === "number") orders.reverse();
      const onclick = () => sort(column, head.getAttribute("aria-sort") === orders[0] ? orders[1] : orders[0]);
      head.replaceChildren(make("button", { type: "button", onclick }, head.textContent));
    });
    for (const metric of metrics) metric.onchange = () => sort(heads.length - 1, "descending");
    for (const input of [field, spilling]) input?.addEventListener("input", show);
    show();
  }
  all("table").forEach(enhance);

  const host = $(".lanes");
  if (!host) return;

  /** Fade all jobs but those of a button in the legend, unless it is pressed already. */
  function highlight(button) {
    const chosen = button?.getAttribute("aria-pressed") === "false" ? button : null;
    for (const other of all(".legend button")) other.setAttribute("aria-pressed", String(other === chosen));
    const [key, name] = Object.entries(chosen?.dataset ?? {})[0] ?? [];
    for (const job of all(".job", host)) job.classList.toggle("faded", job.dataset[key] !== name);
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
