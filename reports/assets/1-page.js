// Theme, long names, copy buttons, sorting, links to findings and printing.
(() => {
  "use strict";
  const root = document.documentElement;
  const darkScheme = matchMedia("(prefers-color-scheme: dark)");
  const themeButton = document.getElementById("theme");

  function isDark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : darkScheme.matches;
  }

  function showTheme() {
    themeButton.textContent = isDark() ? "Light theme" : "Dark theme";
    document.dispatchEvent(new CustomEvent("theme"));
  }

  function rememberTheme(theme) {
    try {
      localStorage.setItem("tracekit-theme", theme);
    } catch {
      // A page opened from a file may be denied storage: the choice then lasts until it is closed.
    }
  }

  function rememberedTheme() {
    try {
      return localStorage.getItem("tracekit-theme");
    } catch {
      return null;
    }
  }

  const remembered = rememberedTheme();
  if (remembered === "dark" || remembered === "light") root.dataset.theme = remembered;
  themeButton.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    rememberTheme(root.dataset.theme);
    showTheme();
  });
  darkScheme.addEventListener("change", showTheme);
  showTheme();

  function toggleLong(element) {
    const other = element.title;
    element.title = element.textContent;
    element.textContent = other;
    const isOpen = element.getAttribute("aria-expanded") === "true";
    element.setAttribute("aria-expanded", String(!isOpen));
  }

  async function copy(button) {
    const code = button.parentElement.querySelector("code");
    let done = true;
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      done = document.execCommand("copy");
    }
    button.textContent = done ? "Copied" : "Press Ctrl+C";
    setTimeout(() => (button.textContent = "Copy"), 2000);
  }

  function sortKey(row, column) {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  }

  function compared(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    if (typeof a === typeof b) return a.localeCompare(b, "en", { numeric: true });
    return typeof a === "number" ? -1 : 1;
  }

  function sort(button) {
    const head = button.closest("th");
    const direction = head.getAttribute("aria-sort") === "descending" ? "ascending" : "descending";
    for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", direction);
    const body = head.closest("table").tBodies[0];
    const sign = direction === "ascending" ? 1 : -1;
    const rows = [...body.rows].map((row) => [sortKey(row, head.cellIndex), row]);
    rows.sort(([a], [b]) => sign * compared(a, b));
    body.append(...rows.map(([, row]) => row));
  }

  document.addEventListener("click", (event) => {
    const target = event.target.closest(".long, .copy, .sort");
    if (!target) return;
    if (target.classList.contains("long")) toggleLong(target);
    else if (target.classList.contains("copy")) copy(target);
    else sort(target);
  });
  document.addEventListener("keydown", (event) => {
    if (!event.target.classList?.contains("long")) return;
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    toggleLong(event.target);
  });

  function linked() {
    const fragment = location.hash.slice(1);
    if (!fragment) return null;
    try {
      return document.getElementById(fragment) ?? document.getElementById(decodeURIComponent(fragment));
    } catch {
      return null; // "%" followed by no number: no element of ours has such an id.
    }
  }

  function follow() {
    const target = linked();
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    if (target.classList.contains("finding")) {
      const evidence = target.querySelector("details");
      if (evidence) evidence.open = true;
    }
    target.scrollIntoView({ block: "start" });
    target.focus({ preventScroll: true });
  }

  addEventListener("hashchange", follow);
  follow();

  // Paper is white, whatever the screen was; and nothing can be opened on it.
  let closed = [];
  let screenTheme;
  addEventListener("beforeprint", () => {
    screenTheme = root.dataset.theme;
    root.dataset.theme = "light";
    showTheme();
    closed = [...document.querySelectorAll("details:not([open])")];
    for (const details of closed) details.open = true;
  });
  addEventListener("afterprint", () => {
    for (const details of closed) details.open = false;
    if (screenTheme) root.dataset.theme = screenTheme;
    else delete root.dataset.theme;
    showTheme();
  });
})();
