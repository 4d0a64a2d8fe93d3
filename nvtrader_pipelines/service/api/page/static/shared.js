"use strict";
// What every page of the service uses: elements, requests, the theme, and the look of charts.

const $ = (selector, root = document) => root.querySelector(selector);
const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
const narrow = () => matchMedia("(max-width: 48rem)").matches;
const say = (text) => { $("#spoken").textContent = text; };
const remember = (name, value) => { try { localStorage.setItem(name, value); } catch { /* private windows */ } };
const recall = (name) => { try { return localStorage.getItem(name); } catch { return null; } };

// ---- requests: an error is the sentence of the service
async function sentence(answer) {
  if (answer.status === 401) lock(); // the service has another token since its start
  if (answer.status === 401) return "This page may only read: open the link that `nvtrader serve` printed last.";
  const problem = await answer.json().catch(() => ({}));
  return problem.detail ?? `The service answered ${answer.status}.`;
}
async function post(path, body) {
  const text = JSON.stringify(body ?? {});
  let answer;
  try {
    answer = await fetch(path, { method: "POST", keepalive: text.length < 60_000, headers: { "Content-Type": "application/json" }, body: text });
  } catch { throw new Error("The service does not answer; nothing was changed. Try again once it runs."); }
  if (!answer.ok) throw new Error(await sentence(answer));
  return answer.json();
}

// ---- lock: without the token of the start, what writes is disabled
const WRITES = "[data-post] [type=submit], [data-do], [data-edit], [data-run-now], [data-load], [data-action], [data-open=halt], [data-open=resume], [data-analyze], [data-preview], #stop, #run";
const isDisabled = (button) => button.getAttribute("aria-disabled") === "true";
let isLocked = false;
function lock() {
  const disable = () => $$(WRITES).filter((button) => !isDisabled(button)).forEach((button) => button.setAttribute("aria-disabled", "true"));
  disable();
  if (!isLocked) new MutationObserver(disable).observe(document.body, { subtree: true, childList: true, attributeFilter: ["aria-disabled"] });
  isLocked = true;
  $("#locked").hidden = false;
}
if (!$("#locked").hidden) lock();

// ---- theme
const themes = ["auto", "light", "dark"];
let theme = themes.includes(recall("theme")) ? recall("theme") : "auto";
function setTheme() {
  theme === "auto" ? delete document.documentElement.dataset.theme : (document.documentElement.dataset.theme = theme);
  $("#theme").textContent = `Theme: ${theme}`;
  drawn.forEach(draw);
}
$("#theme").addEventListener("click", () => { theme = themes[(themes.indexOf(theme) + 1) % 3]; remember("theme", theme); setTheme(); });

// ---- charts
const probe = document.body.appendChild(Object.assign(document.createElement("i"), { hidden: true }));
function color(name, alpha = 1) { // the browser resolves light-dark()
  probe.style.color = `var(${name})`;
  const [r, g, b] = getComputedStyle(probe).color.match(/\d+(\.\d+)?/g);
  return `rgba(${r},${g},${b},${alpha})`;
}
const axis = (more) => ({ gridcolor: color("--line"), linecolor: color("--line"), zeroline: false, fixedrange: narrow(), automargin: true, ...more });
const titled = (text) => (narrow() ? undefined : { text, standoff: 8 });
const layout = (more) => ({
  paper_bgcolor: color("--card"), plot_bgcolor: color("--card"), showlegend: false, hovermode: "closest", dragmode: narrow() ? false : "zoom", uirevision: 1,
  font: { family: getComputedStyle(document.body).fontFamily, size: 12, color: color("--soft") }, margin: { l: 48, r: 10, t: 8, b: 36 },
  hoverlabel: { bgcolor: color("--card"), bordercolor: color("--edge"), font: { color: color("--ink") } }, ...more,
});
let plotly; // loaded once, when the first chart comes near
const loadPlotly = () => (plotly ??= new Promise((resolve, reject) => {
  document.head.append(Object.assign(document.createElement("script"), { src: document.body.dataset.plotly, onload: () => resolve(window.Plotly), onerror: () => { plotly = undefined; reject(new Error("The charts cannot be loaded; the tables have their numbers.")); } }));
}));
