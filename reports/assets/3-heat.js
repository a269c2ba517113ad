// Cells of heat tables: the sentence of a cell on hover and focus, and a walk by arrow keys.
(() => {
  "use strict";
  const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
  const cells = (row) => [...row.cells].filter((cell) => cell.className);

  function sentence(cell) {
    const { says, blank } = cell.closest("table").dataset;
    const columns = cell.closest("table").tHead.rows[0].cells;
    const words = {
      row: cell.parentElement.cells[0].textContent.trim(),
      column: columns[cell.cellIndex].textContent.trim(),
      value: cell.textContent.trim(),
      ...(cell.dataset.also ?? "").split("|"),
    };
    return (words.value ? says : blank).replace(/\{(\w+)\}/g, (_, key) => words[key] ?? "");
  }

  function read(event) {
    const cell = event.target.closest(".heat tbody td[class]");
    if (!cell) return;
    cell.title ||= sentence(cell);
    cell.closest(".scroll").nextElementSibling.textContent = cell.title;
    if (event.type === "pointerover") return;
    const table = cell.closest("table");
    for (const other of table.querySelectorAll('td[tabindex="0"]')) other.tabIndex = -1;
    cell.tabIndex = 0;
  }

  function walk(event) {
    const cell = event.target.closest?.(".heat tbody td[class]");
    const step = STEPS[event.key];
    if (!cell || !step || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    const shown = [...cell.closest("tbody").rows].filter((row) => !row.hidden);
    const row = shown[shown.indexOf(cell.parentElement) + step[0]];
    const next = row && cells(row)[cells(cell.parentElement).indexOf(cell) + step[1]];
    if (!next) return;
    next.tabIndex = -1;
    next.focus();
  }

  for (const table of document.querySelectorAll(".heat")) {
    table.setAttribute("role", "grid");
    const first = table.querySelector("tbody td[class]");
    if (first) first.tabIndex = 0;
  }
  for (const type of ["pointerover", "click", "focusin"]) document.addEventListener(type, read);
  document.addEventListener("keydown", walk);
})();
