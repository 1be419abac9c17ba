"use strict";
(() => {
  const make = (name, attributes, text) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes || {})) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  };

  // Hints: titles become a box of our own, which also opens by a tap.
  const tip = document.body.appendChild(make("div", { id: "tip", role: "tooltip", hidden: "" }));
  const hintOf = (node) => {
    const holder = node instanceof Element ? node.closest("[data-tip], [title], circle, path") : null;
    if (!holder) return "";
    if (holder.hasAttribute("title")) {
      holder.dataset.tip = holder.getAttribute("title");
      holder.removeAttribute("title");
    }
    const title = holder.querySelector(":scope > title");
    if (title) {
      holder.dataset.tip = title.textContent;
      title.remove();
    }
    return holder.dataset.tip || "";
  };
  const show = (event) => {
    const text = hintOf(event.target);
    tip.hidden = !text;
    if (!text) return;
    tip.textContent = text;
    const box = tip.getBoundingClientRect();
    const left = Math.min(event.clientX + 14, innerWidth - box.width - 6);
    const above = event.clientY + 18 + box.height > innerHeight;
    tip.style.left = Math.max(6, left) + "px";
    tip.style.top = (above ? Math.max(6, event.clientY - box.height - 12) : event.clientY + 18) + "px";
  };
  document.addEventListener("pointermove", show);
  document.addEventListener("pointerdown", show);
  document.addEventListener("focusin", (event) => {
    const box = event.target.getBoundingClientRect();
    show({ target: event.target, clientX: box.left, clientY: box.bottom });
  });
  document.documentElement.addEventListener("pointerleave", () => { tip.hidden = true; });
  addEventListener("scroll", () => { tip.hidden = true; }, { passive: true });

  // Tables: a click on a column's name sorts by it.
  const compare = (a, b, numeric) => {
    if (a === "" || b === "") return a === b ? 0 : a === "" ? 1 : -1;
    return numeric ? Number(a) - Number(b) : a.localeCompare(b);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      const button = make("button", { type: "button" }, head.textContent);
      head.replaceChildren(button);
      button.addEventListener("click", () => {
        const down = head.getAttribute("aria-sort") !== "descending";
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        const key = (row) => row.cells[column].dataset.sort || "";
        const rows = [...table.tBodies[0].rows];
        const numeric = !rows.some((row) => Number.isNaN(Number(key(row)))); // of all rows: an order of pairs would not be one
        rows.sort((a, b) => {
          const found = compare(key(a), key(b), numeric);
          return key(a) === "" || key(b) === "" || !down ? found : -found;
        });
        table.tBodies[0].append(...rows);
      });
    });
  }

  // Legends: a click on a name shows its marks alone.
  for (const entry of document.querySelectorAll(".legend li")) {
    const whole = entry.closest("figure, .linked");
    if (entry.parentElement.children.length < 2) continue;
    entry.setAttribute("role", "button");
    entry.setAttribute("tabindex", "0");
    entry.setAttribute("aria-pressed", "false");
    const toggle = () => {
      const chosen = entry.getAttribute("aria-pressed") !== "true";
      for (const other of entry.parentElement.children) other.setAttribute("aria-pressed", String(chosen && other === entry));
      for (const group of whole.querySelectorAll("svg g[class]")) {
        group.classList.toggle("dim", chosen && !group.classList.contains("s" + entry.dataset.series));
      }
    };
    entry.addEventListener("click", toggle);
    entry.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      toggle();
    });
  }

  // Lists: by text, by the right label and by the predicted one.
  for (const list of document.querySelectorAll(".filtered")) {
    const cards = [...list.querySelectorAll(".card")];
    const bar = make("div", { class: "filter" });
    const words = bar.appendChild(make("input", { type: "search", placeholder: "words in the text", "aria-label": "Words in the text" }));
    const choice = (name, title) => {
      const menu = bar.appendChild(make("select", { "aria-label": title }));
      menu.append(make("option", { value: "" }, title));
      const labels = [...new Set(cards.map((card) => card.dataset[name]))].sort();
      for (const label of labels) menu.append(make("option", { value: label }, label));
      menu.hidden = labels.length > 100; // whole sequences of tags are no labels to choose from
      return menu;
    };
    const menus = { gold: choice("gold", "any right label"), predicted: choice("predicted", "any predicted label") };
    const count = bar.appendChild(make("span", { class: "soft", role: "status" }));
    const apply = () => {
      const sought = words.value.toLowerCase();
      let shown = 0;
      for (const card of cards) {
        const fits = Object.entries(menus).every(([name, menu]) => !menu.selectedIndex || card.dataset[name] === menu.value);
        card.hidden = !fits || !card.textContent.toLowerCase().includes(sought);
        shown += card.hidden ? 0 : 1;
      }
      count.textContent = shown + " of " + cards.length;
      const narrowed = sought || Object.values(menus).some((menu) => menu.selectedIndex);
      const rest = list.querySelector(":scope > details");
      if (rest && narrowed) rest.open = true;
    };
    bar.addEventListener("input", apply);
    list.prepend(bar);
    apply();
    const choose = (menu, label) => {
      menu.selectedIndex = [...menu.options].findIndex((option, number) => number > 0 && option.value === label);
      return menu.selectedIndex > 0;
    };
    for (const link of document.querySelectorAll("a[data-gold]")) {
      link.addEventListener("click", () => {
        words.value = "";
        const known = choose(menus.gold, link.dataset.gold) && choose(menus.predicted, link.dataset.predicted);
        if (!known) for (const menu of Object.values(menus)) menu.selectedIndex = 0;
        apply();
        if (!known) count.textContent += "; none of this cell is listed";
      });
    }
  }

  // Paper: everything that is folded is printed.
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")];
    for (const details of opened) details.open = true;
  });
  addEventListener("afterprint", () => { for (const details of opened) details.open = false; });
})();
