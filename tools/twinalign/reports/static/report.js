// Sorting and filtering of what is in the page already. Texts are read and rows are moved; nothing is made from text.
"use strict";
(() => {
  const NOTHING = new Set(["", "–"]);

  // A text, or a list of numbers: one, or those of an index, with which the values at that place may stand.
  const value = (row, column) => {
    const whole = row.cells[column].textContent.trim();
    const text = (/^(–|\d+(?:, \d+)*): /.exec(whole) || [whole, whole])[1];
    if (NOTHING.has(text)) return null;
    if (text === "NaN") return [Infinity];
    if (/^\d+(×\d+)+$/.test(text)) return [text.split("×").reduce((product, side) => product * Number(side), 1)];
    const numbers = text.split(", ").map(Number);
    return numbers.some(Number.isNaN) ? whole : numbers;
  };

  const compare = (first, second, numeric) => {
    if (!numeric) return String(first).localeCompare(String(second), undefined, { numeric: true });
    const at = first.findIndex((number, place) => number !== second[place]);
    return at < 0 ? first.length - second.length : first[at] - (second[at] ?? -1);
  };

  // A row may be followed by one that says why, which goes where it goes.
  const reasons = new Map();
  const tensorsOf = (body) => {
    const rows = [];
    for (const row of body.rows) {
      if (row.className === "why") reasons.set(rows[rows.length - 1], row);
      else rows.push(row);
    }
    return rows;
  };
  const place = (body, rows) => body.append(...rows.flatMap((row) => (reasons.has(row) ? [row, reasons.get(row)] : [row])));

  // Rows are read when somebody sorts or filters; those of the second table go into the first.
  const explorable = (details) => {
    const table = details.querySelector("table");
    const body = table.tBodies[0];
    const further = details.querySelector("details.further");
    const [name, verdict] = ["name", "verdict"].map((kind) => details.querySelector(`[data-filter="${kind}"]`));
    const output = details.querySelector("output");
    let original = null;
    const rows = () => {
      if (original === null) {
        original = tensorsOf(body);
        if (further) {
          original.push(...tensorsOf(further.querySelector("tbody")));
          further.remove();
          place(body, original);
        }
      }
      return original;
    };
    const say = (shown) => {
      output.textContent = output.dataset.pattern.replace("#", String(shown));
    };
    const apply = () => {
      const wanted = name.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows()) {
        const of = ["diverged", "inconclusive", "rounding"].find((kind) => row.classList.contains(kind)) || "aligned";
        row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted) || (verdict.value && of !== verdict.value);
        if (reasons.has(row)) reasons.get(row).hidden = row.hidden;
        shown += row.hidden ? 0 : 1;
      }
      say(shown);
    };
    name.addEventListener("input", apply);
    verdict.addEventListener("change", apply);
    if (further) further.addEventListener("toggle", apply, { once: true });
    say(body.querySelectorAll(":scope > tr:not(.why)").length);

    const heads = Array.from(table.tHead.rows[0].cells);
    heads.forEach((head, column) => {
      const button = head.querySelector("button");
      button.disabled = false;
      button.addEventListener("click", () => {
        const keyed = rows().map((row) => [value(row, column), row]);
        const known = keyed.filter(([key]) => key !== null);
        const numeric = known.every(([key]) => Array.isArray(key));
        const order = numeric ? ["descending", "ascending"] : ["ascending", "descending"];
        const next = [...order, "none"][["none", ...order].indexOf(head.getAttribute("aria-sort"))];
        heads.forEach((other) => other.setAttribute("aria-sort", other === head ? next : "none"));
        const sign = next === "ascending" ? 1 : -1;
        if (next !== "none") known.sort((first, second) => sign * compare(first[0], second[0], numeric));
        const sorted = known.concat(keyed.filter(([key]) => key === null)).map(([, row]) => row);
        place(body, next === "none" ? rows() : sorted);
        apply();
      });
    });
  };

  document.querySelectorAll("details.evidence").forEach(explorable);
  document.querySelectorAll("[data-open]").forEach((button) => {
    button.addEventListener("click", () => {
      for (const details of document.querySelectorAll(".tree details")) details.open = button.dataset.open === "true";
    });
  });
  document.querySelectorAll(".controls").forEach((controls) => {
    controls.hidden = false;
  });

  document.querySelectorAll("[data-copy]").forEach((button) => {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(document.getElementById(button.dataset.copy).textContent);
      button.textContent = button.dataset.done;
    });
  });

  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = Array.from(document.querySelectorAll("details.evidence:not([open])"));
    opened.forEach((details) => {
      details.open = true;
    });
  });
  window.addEventListener("afterprint", () => {
    opened.forEach((details) => {
      details.open = false;
    });
  });
})();
