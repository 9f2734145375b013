// What this browser remembers. A private window may refuse: then nothing is remembered.

export const remembered = {
  get: (key, otherwise = null) => {
    try { return JSON.parse(localStorage.getItem(`hives.${key}`)) ?? otherwise; } catch { return otherwise; }
  },
  set: (key, value) => {
    try {
      if (value === null) localStorage.removeItem(`hives.${key}`);
      else localStorage.setItem(`hives.${key}`, JSON.stringify(value));
    } catch { /* a private window */ }
  },
};

/** Calls back when another tab has changed the value. */
export function watchRemembered(key, changed) {
  addEventListener("storage", (event) => { if (event.key === `hives.${key}`) changed(); });
}
