"use strict";

const root = document.documentElement;
const input = document.getElementById("search");
const results = document.getElementById("results");
const menu = document.getElementById("menu");

document.getElementById("theme").addEventListener("click", () => {
  root.dataset.theme = localStorage.theme = root.dataset.theme === "dark" ? "light" : "dark";
});

menu.addEventListener("click", () => {
  menu.setAttribute("aria-expanded", document.body.classList.toggle("open"));
});

// Headings count more than text, and all words have to be found.
function score(entry, words) {
  const [title, heading, , text] = entry.map((part) => part.toLowerCase());
  let sum = 0;
  for (const word of words) {
    if (heading.includes(word)) sum += heading.startsWith(word) ? 12 : 10;
    else if (title.includes(word)) sum += 5;
    else if (text.includes(word)) sum += 1;
    else return 0;
  }
  return sum;
}

function show() {
  const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length === 0 ? [] : ENTRIES.map((entry) => [score(entry, words), entry])
    .filter(([points]) => points > 0)
    .sort(([one], [other]) => other - one)
    .slice(0, 12);
  results.replaceChildren(...found.map(([, [title, heading, target, text]]) => {
    const link = document.createElement("a");
    link.href = target;
    const small = document.createElement("small");
    small.textContent = title === heading ? text.slice(0, 80) : title;
    link.append(heading, small);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (words.length > 0 && found.length === 0) {
    const item = document.createElement("li");
    item.textContent = "Nothing found";
    results.append(item);
  }
  results.hidden = words.length === 0;
}

input.addEventListener("input", show);
input.addEventListener("focus", show);
results.addEventListener("click", () => { results.hidden = true; });
document.addEventListener("click", (event) => {
  if (!event.target.closest("header")) results.hidden = true;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== input) {
    event.preventDefault();
    input.focus();
  } else if (event.key === "Escape") {
    results.hidden = true;
    input.blur();
  } else if (event.key === "Enter" && document.activeElement === input) {
    results.querySelector("a")?.click();
  }
});
