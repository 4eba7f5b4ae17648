// Light and dark: as the system says, or as the reader chose here.
"use strict";

const siafuTheme = (() => {
  const KEY = "siafu-theme";
  const CHOICES = ["system", "light", "dark"];
  const listeners = [];
  let current = "system";

  // A page opened from disk may have no storage: the choice then lasts as long as the page.
  function remembered() {
    try {
      const found = localStorage.getItem(KEY);
      return CHOICES.includes(found) ? found : "system";
    } catch {
      return "system";
    }
  }

  function choose(choice) {
    current = choice;
    if (choice === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = choice;
    try {
      localStorage.setItem(KEY, choice);
    } catch {
      // see `remembered`
    }
    for (const listener of listeners) listener();
  }

  /** A labelled select of system, light and dark, in `host`. */
  function addSwitch(host) {
    const label = document.createElement("label");
    label.className = "theme-switch";
    label.append("Theme ");
    const select = document.createElement("select");
    for (const choice of CHOICES) select.append(new Option(choice, choice, false, choice === current));
    select.addEventListener("change", () => choose(select.value));
    label.append(select);
    host.append(label);
  }

  choose(remembered());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
    for (const listener of listeners) listener();
  });

  return {
    addSwitch,
    /** Call `listener` whenever colours change. */
    onChange: (listener) => listeners.push(listener),
    /** The value of a custom property of style.css, e.g. `--grid`. */
    colour: (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim(),
  };
})();
