"use strict";
(() => {
  const LIST = "#removed-list, #clusters-list";
  // Arrows walk through the documents or clusters of a list, as in a menu.
  document.addEventListener("keydown", (event) => {
    const list = event.target.tagName === "SUMMARY" && event.target.closest(LIST);
    if (!list || event.ctrlKey || event.metaKey || event.altKey) return;
    const heads = Array.from(list.querySelectorAll(":scope > details:not([hidden]) > summary"));
    const at = heads.indexOf(event.target);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: heads.length - 1 }[event.key];
    if (to === undefined || !heads[to]) return;
    event.preventDefault();
    heads[to].focus();
  });
  // Two texts side by side are read together.
  for (const sides of document.querySelectorAll(".sides")) {
    const texts = Array.from(sides.querySelectorAll("pre"));
    const room = (text) => text.scrollHeight - text.clientHeight;
    texts.forEach((text, number) => {
      const other = texts[1 - number];
      text.addEventListener("scroll", () => {
        const to = Math.round(text.scrollTop / Math.max(room(text), 1) * room(other));
        if (Math.abs(other.scrollTop - to) > 1) other.scrollTop = to;
      }, { passive: true });
    });
  }
})();
(() => {
  const form = document.getElementById("filter");
  if (!form) return;
  const known = JSON.parse(document.getElementById("report-data").textContent).removed;
  const items = Array.from(document.querySelectorAll("#removed-list > details"));
  const search = document.getElementById("search");
  const count = document.getElementById("count");
  const openAll = document.getElementById("open-all");
  const names = ["stage", "rule", "domain", "language"];
  const selects = new Map(names.map((name) => [name, document.getElementById(name)]));
  const texts = items.map((item) => item.textContent.toLowerCase());
  const NONE = "\u0000";

  function fill(name, select) {
    const stage = selects.get("stage").value;
    const counts = new Map();
    for (const each of known) {
      if (name === "rule" && stage && each.stage !== stage) continue;
      counts.set(each[name], (counts.get(each[name]) || 0) + 1);
    }
    const before = select.value;
    select.replaceChildren(new Option("all", ""));
    for (const [value, number] of counts) {
      select.add(new Option((value || "none") + " (" + number + ")", value || NONE));
    }
    select.value = before;
    if (select.selectedIndex < 0) select.selectedIndex = 0;
    select.parentElement.hidden = counts.size < 2 && name !== "rule";
  }

  function matches(number, words) {
    for (const [name, select] of selects) {
      const wanted = select.value;
      if (wanted && known[number][name] !== (wanted === NONE ? "" : wanted)) return false;
    }
    return words.every((word) => texts[number].includes(word));
  }

  function apply() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    items.forEach((item, number) => {
      item.hidden = !matches(number, words);
      if (!item.hidden) shown += 1;
    });
    count.textContent = shown ? shown + " of " + items.length + " shown" : "Nothing matches.";
    openAll.disabled = shown === 0;
  }

  function show(item) {
    item.hidden = false;
    item.open = true;
    item.scrollIntoView();
    item.querySelector("summary").focus({ preventScroll: true });
  }

  function follow() {
    const target = document.getElementById(location.hash.slice(1));
    if (!target || !items.includes(target)) return;
    const found = known[items.indexOf(target)];
    form.reset();
    selects.get("stage").value = found.stage;
    fill("rule", selects.get("rule"));
    selects.get("rule").value = found.rule;
    apply();
    show(target);
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  search.addEventListener("keydown", (event) => {
    const first = items.find((item) => !item.hidden);
    if (!first || (event.key !== "Enter" && event.key !== "ArrowDown")) return;
    event.preventDefault();
    first.querySelector("summary").focus();
  });
  form.addEventListener("input", apply);
  document.getElementById("clear").addEventListener("click", () => {
    form.reset();
    fill("rule", selects.get("rule"));
    apply();
    search.focus();
  });
  selects.get("stage").addEventListener("change", () => {
    fill("rule", selects.get("rule"));
    apply();
  });
  openAll.addEventListener("click", () => {
    const shown = items.filter((item) => !item.hidden);
    const open = shown.some((item) => !item.open);
    shown.forEach((item) => { item.open = open; });
  });
  document.addEventListener("keydown", (event) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    search.focus();
  });
  window.addEventListener("hashchange", follow);

  for (const [name, select] of selects) fill(name, select);
  form.hidden = false;
  apply();
  follow();
})();
