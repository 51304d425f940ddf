// Light or dark, before anything is painted; the reader's choice is remembered.
"use strict";

(() => {
  const KEY = "gemfi-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");

  function kept() {
    try {
      return localStorage.getItem(KEY);
    } catch {
      return null; // a browser that keeps nothing follows the system
    }
  }

  function keep(theme) {
    try {
      localStorage.setItem(KEY, theme);
    } catch {
      // the choice then holds until the page is left
    }
  }

  function show(theme) {
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  }

  function isDark() {
    const chosen = document.documentElement.dataset.theme;
    return chosen ? chosen === "dark" : system.matches;
  }

  function wire() {
    const button = document.querySelector("#theme");
    const tell = () => {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", isDark() ? "Use light colours" : "Use dark colours");
    };
    button.addEventListener("click", () => {
      const theme = isDark() ? "light" : "dark";
      show(theme);
      keep(theme);
      tell();
    });
    system.addEventListener("change", tell);
    tell();
  }

  show(kept());
  document.addEventListener("DOMContentLoaded", wire);
})();
