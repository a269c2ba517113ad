// The filter, and the charts and tables that follow it.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("numbers").textContent);
  const nRows = data.ranks.length;
  const nSteps = data.steps.length;
  const nParts = data.parts.length;
  const cells = floats(data.cells);
  const mean = floats(data.mean);
  const faulty = new Set(data.faulty);
  const state = { ranks: null, steps: null, view: 0 };
  let plotly = null;

  function floats(base64) {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const view = new DataView(bytes.buffer);
    return Float32Array.from({ length: bytes.length / 4 }, (_, i) => view.getFloat32(4 * i, true));
  }

  function figure(kind) {
    const block = document.getElementById(`figure-${kind}`);
    return block && JSON.parse(block.textContent);
  }

  // "0-7, 12" as a test of numbers; null for everything, undefined for what cannot be read.
  function chosen(text) {
    const parts = text.replaceAll("–", "-").split(",").map((part) => part.trim()).filter(Boolean);
    if (!parts.length || text.trim().toLowerCase() === "all") return null;
    const spans = parts.map((part) => part.match(/^(\d+)(?:\s*-\s*(\d+))?$/));
    if (spans.includes(null)) return undefined;
    const bounds = spans.map(([, low, high]) => [Number(low), Number(high ?? low)]);
    return (number) => bounds.some(([low, high]) => low <= number && number <= high);
  }

  const allRows = Array.from({ length: nRows }, (_, i) => i);
  const allSteps = Array.from({ length: nSteps }, (_, i) => i);
  const rows = () => (state.ranks ? allRows.filter((i) => state.ranks(data.ranks[i])) : allRows);
  const steps = () => (state.steps ? allSteps.filter((i) => state.steps(data.steps[i])) : allSteps);
  const cell = (part, row, step) => cells[(part * nRows + row) * nSteps + step];

  // The parts of a row: its mean step, or the mean over the steps chosen.
  function partsOf(row) {
    if (!state.steps) return Array.from({ length: nParts }, (_, part) => mean[part * nRows + row]);
    const there = steps().filter((step) => !Number.isNaN(cell(0, row, step)));
    return Array.from({ length: nParts }, (_, part) =>
      there.length ? there.reduce((sum, step) => sum + cell(part, row, step), 0) / there.length : NaN);
  }

  const total = (parts) => parts.reduce((sum, part) => sum + part, 0);

  // At most maxRows rows for bars and table, the longest own time first when there are more.
  function barRows() {
    if (!state.ranks) return data.shown;
    const chosenRows = rows();
    if (chosenRows.length <= data.maxRows) return chosenRows;
    const own = new Map(chosenRows.map((row) => {
      const parts = partsOf(row);
      return [row, total(parts) - parts[data.waiting]];
    }));
    return chosenRows.sort((a, b) => own.get(b) - own.get(a)).slice(0, data.maxRows);
  }

  function viewed(view, row, step) {
    const value = view.parts.reduce((sum, part) => sum + cell(part, row, step), 0);
    if (!view.isShare) return value / 1e9;
    let whole = 0;
    for (let part = 0; part < nParts; part++) whole += cell(part, row, step);
    return whole ? value / whole : NaN;
  }

  // A spread below 10 % is noise: it must not fill the whole scale.
  function range(z, isShare) {
    let low = Infinity;
    let high = -Infinity;
    for (const row of z) for (const value of row) {
      if (value < low) low = value;
      if (value > high) high = value;
    }
    if (low > high) return [0, 1];
    if (isShare) return [Math.min(low, Math.max(0, high - 0.05)), Math.max(high, 0.05)];
    return [low, Math.max(high, 1.1 * low)];
  }

  // An outline would hide a row of one pixel: among many rows a mark at the edge points to it.
  function marks(kept) {
    const color = css("--part-2");
    const marked = kept.map((row, i) => [data.ranks[row], i]).filter(([rank]) => faulty.has(rank)).slice(0, 64);
    if (kept.length <= 48) {
      const line = { color, width: 3 };
      return { shapes: marked.map(([, i]) => ({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: i - 0.5, y1: i + 0.5, line })) };
    }
    const apart = marked.filter(([, i], at) => at === 0 || i - marked[at - 1][1] > 14);
    return {
      annotations: apart.map(([rank, i]) => ({
        xref: "paper", x: 1, y: i, xanchor: "right", text: `${rank} ◀`, showarrow: false,
        font: { color: "#ffffff", size: 11 }, bgcolor: color, borderpad: 1,
      })),
    };
  }

  // The property itself reads "light-dark(…)": only a colour that uses it is resolved.
  const probe = document.body.appendChild(document.createElement("i"));
  probe.hidden = true;
  function css(name) {
    probe.style.color = `var(${name})`;
    return getComputedStyle(probe).color;
  }

  function themed(layout, height) {
    const axis = { gridcolor: css("--grid"), linecolor: css("--line"), zerolinecolor: css("--line") };
    return {
      ...layout, height, autosize: true, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: css("--text"), family: "system-ui, sans-serif", size: 12 },
      hoverlabel: { bgcolor: css("--card"), bordercolor: css("--line"), font: { color: css("--text") } },
      xaxis: { ...axis, ...layout.xaxis }, yaxis: { ...axis, ...layout.yaxis },
    };
  }

  function draw(kind, traces, layout) {
    const element = document.getElementById(`chart-${kind}`);
    if (!element.classList.contains("js-plotly-plot")) element.replaceChildren();
    element.style.height = `${layout.height}px`;
    return plotly.react(element, traces, layout, { responsive: true, displayModeBar: false });
  }

  function drawHeat() {
    const { data: [trace], layout } = figure("heat");
    const view = data.views[state.view];
    const keptRows = rows();
    const keptSteps = steps();
    const z = keptRows.map((row) => Float32Array.from(keptSteps, (step) => viewed(view, row, step)));
    const [zmin, zmax] = range(z, view.isShare);
    const averaged = new Set(data.averaged);
    const gap = keptRows.length < 60 && keptSteps.length < 60 ? 1 : 0;
    const format = view.isShare ? ".1%" : ".3s";
    const unit = view.isShare ? "" : "s";
    Object.assign(trace, {
      z, zmin, zmax,
      x: keptSteps.map((i) => `${data.steps[i]}${averaged.has(data.steps[i]) ? "" : "*"}`),
      y: keptRows.map((i) => data.labels[i]),
      hovertemplate: `%{y}, step %{x}<br>${view.label}: %{z:${format}}${unit}<extra></extra>`,
      xgap: gap, ygap: gap,
    });
    trace.colorbar = { ...trace.colorbar, tickformat: view.isShare ? ".0%" : "~s", ticksuffix: unit };
    // At least one pixel per rank, or a single late one could fall between two pixels.
    const height = 90 + Math.max(130, Math.min(640, 24 * keptRows.length), Math.min(1400, keptRows.length));
    const framed = { ...layout, ...marks(keptRows), yaxis: { ...layout.yaxis, range: [keptRows.length - 0.5, -0.5] } };
    if (keptRows.length <= 32) framed.yaxis.dtick = 1;
    draw("heat", [trace], themed(framed, height));
    document.getElementById("chart-heat").setAttribute("aria-label",
      `Heat map of ${keptRows.length} devices and ${keptSteps.length} steps: ${view.label}`);
  }

  function drawBars() {
    const { data: traces, layout } = figure("bars");
    const kept = barRows();
    const parts = kept.map(partsOf);
    traces.forEach((trace, part) => {
      trace.x = parts.map((values) => values[part] / 1e9);
      trace.y = kept.map((i) => data.labels[i] + (faulty.has(data.ranks[i]) ? " ◀" : ""));
      trace.marker.color = css(`--part-${part}`);
    });
    const framed = { ...layout, yaxis: { ...layout.yaxis, dtick: 1 } };
    draw("bars", traces, themed(framed, 90 + Math.max(3, kept.length) * (kept.length > 24 ? 17 : 26)));
  }

  function drawCharts() {
    if (!plotly) return;
    if (document.getElementById("chart-heat")) drawHeat();
    if (document.getElementById("chart-bars")) drawBars();
  }

  // Three digits and a unit, as tracekit prints durations everywhere.
  function nsText(ns) {
    if (Number.isNaN(ns)) return "–";
    const [unit, size] = [["s", 1e9], ["ms", 1e6], ["µs", 1e3]].find(([, each]) => Math.abs(ns) >= each) ?? ["ns", 1];
    const scaled = ns / size;
    const digits = Math.abs(scaled) < 1000 ? String(Number(scaled.toPrecision(3))) : Math.round(scaled).toLocaleString("en");
    return `${digits} ${unit}`;
  }

  // The table of the mean steps is cut on the server: chosen ranks come from the numbers instead.
  function fillMeanTable() {
    const table = document.querySelector('table[data-source="mean"]');
    if (!table) return;
    const names = [...table.tHead.rows[0].cells].map((head) => head.textContent.trim());
    const hasDevice = names[1] === "Device";
    table.tBodies[0].replaceChildren(...barRows().map((row) => {
      const tr = document.createElement("tr");
      const parts = partsOf(row);
      tr.dataset.rank = data.ranks[row];
      const device = hasDevice ? [[Number(data.labels[row].split(" ").at(-1)), String]] : [];
      const values = [[data.ranks[row], String], ...device, [total(parts), nsText], ...parts.map((ns) => [ns, nsText])];
      for (const [value, shown] of values) {
        const td = tr.insertCell();
        if (shown === nsText) td.className = "n";
        td.dataset.value = value;
        td.textContent = shown(value);
      }
      return tr;
    }));
    for (const head of table.tHead.rows[0].cells) head.removeAttribute("aria-sort");
  }

  const barsNote = document.getElementById("bars-note");
  const wholeNote = barsNote?.textContent;

  function sayBars() {
    if (!barsNote) return;
    const sentences = [];
    const nChosen = rows().length;
    if (!state.ranks) sentences.push(wholeNote);
    else if (nChosen > data.maxRows) sentences.push(`${data.maxRows} of ${nChosen.toLocaleString("en")} chosen devices, the longest own time first.`);
    if (state.steps) sentences.push(`Mean of the chosen steps: ${steps().map((i) => data.steps[i]).join(", ") || "none"}.`);
    barsNote.textContent = sentences.join(" ");
  }

  function filterTables() {
    for (const row of document.querySelectorAll("tr[data-rank], tr[data-step]")) {
      const { rank, step } = row.dataset;
      row.hidden = Boolean((rank !== undefined && state.ranks && !state.ranks(Number(rank)))
        || (step !== undefined && state.steps && !state.steps(Number(step))));
    }
  }

  const form = document.getElementById("filter");

  function read(input) {
    const test = chosen(input.value);
    input.setAttribute("aria-invalid", String(test === undefined));
    return test;
  }

  function say() {
    const nRanks = new Set(data.ranks).size;
    const nChosen = new Set(rows().map((i) => data.ranks[i])).size;
    const text = `${nChosen.toLocaleString("en")} of ${nRanks.toLocaleString("en")} ranks, ${steps().length} of ${nSteps} steps`;
    document.getElementById("filter-state").textContent = text;
  }

  function apply() {
    const ranks = read(document.getElementById("filter-ranks"));
    const chosenSteps = read(document.getElementById("filter-steps"));
    if (ranks === undefined || chosenSteps === undefined) {
      document.getElementById("filter-state").textContent = "Write numbers and spans, as in 0-7, 12";
      return;
    }
    const isFirst = !state.ranks && !state.steps && !ranks && !chosenSteps;
    Object.assign(state, { ranks, steps: chosenSteps });
    say();
    if (isFirst) return;
    sayBars();
    fillMeanTable();
    filterTables();
    drawCharts();
  }

  if (form) {
    let wait = 0;
    form.addEventListener("submit", (event) => event.preventDefault());
    form.addEventListener("input", () => { clearTimeout(wait); wait = setTimeout(apply, 300); });
    form.addEventListener("change", () => { clearTimeout(wait); apply(); });
    form.addEventListener("reset", () => setTimeout(apply));
    document.getElementById("filter-faulty")?.addEventListener("click", (event) => {
      document.getElementById("filter-ranks").value = event.target.dataset.ranks;
      apply();
    });
    apply();
  }

  for (const button of document.querySelectorAll(".views button")) {
    button.addEventListener("click", () => {
      for (const other of document.querySelectorAll(".views button")) other.setAttribute("aria-pressed", String(other === button));
      state.view = Number(button.dataset.view);
      document.getElementById("view-caption").textContent = data.views[state.view].caption;
      drawCharts();
    });
  }
  document.addEventListener("theme", drawCharts);

  // The library stands in the page as text and is compiled once the first screen has been painted.
  function loadPlotly() {
    const script = document.createElement("script");
    script.textContent = document.getElementById("plotly").textContent;
    document.head.append(script);
    plotly = window.Plotly ?? null;
    drawCharts();
    document.documentElement.dataset.drawn = String(plotly !== null);
  }

  if (document.querySelector(".chart")) {
    document.addEventListener("DOMContentLoaded", () => requestAnimationFrame(() => setTimeout(loadPlotly)));
  }
})();
