// Light or dark: the system's choice unless the reader made one. A classic script that
// runs before the first paint, so that the page never flashes in the wrong colours.

(() => {
  const KEY = "agentrt.theme";
  const root = document.documentElement;
  const system = window.matchMedia("(prefers-color-scheme: dark)");

  function chosen() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null;
    }
  }

  function apply() {
    const own = chosen();
    const theme = own === "dark" || own === "light" ? own : system.matches ? "dark" : "light";
    root.dataset.theme = theme;
    const button = document.querySelector("[data-testid=theme-toggle]");
    const label = theme === "dark" ? "Use light colours" : "Use dark colours";
    button?.setAttribute("aria-label", label);
    button?.setAttribute("title", label);
  }

  function toggle() {
    const next = root.dataset.theme === "dark" ? "light" : "dark";
    try {
      localStorage.setItem(KEY, next);
      apply();
    } catch {
      root.dataset.theme = next; // lasts as long as the page
    }
  }

  apply();
  system.addEventListener("change", apply);
  window.addEventListener("storage", apply);
  document.addEventListener("DOMContentLoaded", () => {
    apply();
    document.querySelector("[data-testid=theme-toggle]").addEventListener("click", toggle);
  });
})();
