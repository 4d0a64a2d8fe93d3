"use strict";
// The server renders the page. This keeps it current, draws its charts, and sends what a person decides.

const STREAM = "/api/continuous-rl/stream", CHANGES = "/api/continuous-rl/changes";
const POLL = 2000, LOST = 12000, UNDO = 5000; // milliseconds; the stream sends something every five seconds
const MAX_POINTS = 200; // of a curve

// ---- state: rows of charts by id, and the version that this page has
const series = {};
let version = document.body.dataset.version;
const SAID = { said_search: document.body.dataset.saidSearch, said_training: document.body.dataset.saidTraining }; // read aloud when they change
function takeSeries(name, change) {
  const kept = (series[name] ??= { rows: new Map(), facts: {} });
  if (change.reset) kept.rows.clear();
  kept.facts = change.facts;
  change.rows.forEach((row) => kept.rows.set(row.id, row));
  const figure = $(`[data-chart="${name}"]`);
  figure.hidden = !kept.rows.size;
  if (drawn.has($(".plot", figure))) draw($(".plot", figure));
}
function apply(change) {
  if (change.after && change.after !== version) return change.version === version ? undefined : catchUp();
  version = change.version;
  $("[data-clock]").textContent = change.clock;
  Object.entries(change.parts).forEach(([name, html]) => takePart(name, html));
  Object.entries(change.values).forEach(([name, text]) => {
    $$(`[data-value="${name}"]`).forEach((element) => { element.textContent = text; });
    if (name in SAID && SAID[name] !== undefined && text) say(text);
    if (name in SAID) SAID[name] = text;
  });
  Object.entries(change.series).forEach(([name, rows]) => takeSeries(name, rows));
  const waiting = $('[data-value="waiting"]').textContent;
  document.title = `${waiting ? `(${waiting}) ` : ""}Continuous RL · NVTrader`;
}
async function catchUp() {
  const answer = await fetch(`${CHANGES}?after=${version}`, { signal: AbortSignal.timeout(LOST / 2) });
  if (!answer.ok) throw new Error(await sentence(answer));
  return apply(await answer.json());
}

// ---- parts: what differs is changed in place, so that focus, scroll, typed text and open rows stay
const KEPT = new Set(["data-sent", "data-editing", "aria-expanded", "open", "hidden", "aria-selected", "tabindex", "aria-invalid", "aria-current"]);
const keyOf = (node) => node.nodeType === 1 ? node.id || node.dataset.key || node.dataset.account || "" : "";
function takePart(name, html) {
  const target = $(`[data-part="${name}"]`), holder = document.createElement("template");
  if (!target) return;
  holder.innerHTML = html; // rendered by the server, which escapes every value
  const before = chosenPlan(), order = tabs().map(({ dataset }) => dataset.tab), focused = document.activeElement;
  const looked = $$("[role=tabpanel]:is(:not([hidden]), [data-editing]):not([data-sent])");
  morph(target, holder.content);
  if (focused.isConnected) focused.focus({ preventScroll: true }); // what moves loses it
  if (name === "plans") {
    choosePlan(order.slice(order.indexOf(before)).find((id) => $(`#plan-${id}`)));
    $$("[data-editing]").forEach(showEdits);
    if (tabs().length > order.length) say("A plan waits for you.");
    looked.filter((panel) => !panel.isConnected).forEach(({ dataset }) => notify(`The plan of ${dataset.name} no longer waits: it was decided elsewhere, or expired.`));
    chooseEdited();
  }
  afterPart(name);
}
function morph(target, fresh) {
  const keyed = new Map([...target.children].filter(keyOf).map((node) => [keyOf(node), node]));
  let place = target.firstChild;
  for (const node of [...fresh.childNodes]) {
    const key = keyOf(node);
    let old = key ? keyed.get(key) : place && !keyOf(place) && place.nodeName === node.nodeName ? place : undefined;
    if (old && old.nodeName !== node.nodeName) old = undefined;
    if (!old) { target.insertBefore(node, place); continue; }
    if (old === place) place = place.nextSibling; else target.insertBefore(old, place);
    if (old.nodeType !== 1) { if (old.data !== node.data) old.data = node.data; continue; }
    for (const { name } of [...old.attributes]) if (!node.hasAttribute(name) && !KEPT.has(name)) old.removeAttribute(name);
    for (const { name, value } of node.attributes) if (!KEPT.has(name) && old.getAttribute(name) !== value) old.setAttribute(name, value);
    if (!old.matches(".error, input, textarea, select")) morph(old, node);
  }
  while (place) { const next = place.nextSibling; place.remove(); place = next; }
}
function afterPart(name) {
  if (name === "schedule") showLaunches();
  if (["ticker", "trades"].includes(name)) chooseAccount();
  if (["periods", "ranked"].includes(name)) choosePeriod();
}

// ---- stream: one a browser, shared by its tabs; polling while it is away
const channel = new BroadcastChannel("nvtrader");
let heard = performance.now(), isLost = false, polling;
function show(state) {
  $("#conn").className = `conn ${state}`;
  $("#conn b").textContent = { live: "Live", polling: "Polling", lost: "Reconnecting" }[state];
  if ((state === "lost") === isLost) return;
  isLost = state === "lost";
  $("#lost").hidden = !isLost;
  if (isLost) $("#lost time").textContent = $("[data-clock]").textContent;
  say(isLost ? "Connection lost." : "Connected again.");
}
function hear(change) { heard = performance.now(); show("live"); return apply(change); }
function receive(data) { const change = JSON.parse(data); channel.postMessage(change); hear(change)?.catch(() => {}); }
channel.onmessage = ({ data }) => { hear(data)?.catch(() => {}); };
function lead() { // holds the lock while this tab lives, so that another opens the stream after it
  return new Promise(() => {
    let source;
    const open = () => {
      source?.close();
      source = new EventSource(`${STREAM}?after=${version}`);
      source.addEventListener("changes", ({ data }) => receive(data));
      source.onerror = () => { poll(); if (source.readyState === EventSource.CLOSED) setTimeout(open, POLL); };
    };
    open();
    setInterval(() => { if (performance.now() - heard > LOST) open(); }, LOST);
  });
}
async function poll() {
  clearTimeout(polling);
  polling = -1; // under way
  const since = heard;
  try { await catchUp(); if (since === heard) show("polling"); } catch { if (since === heard) show("lost"); }
  polling = setTimeout(() => { polling = undefined; if (since === heard || performance.now() - heard > LOST) poll(); }, POLL);
}
setInterval(() => { if (performance.now() - heard > LOST && !polling) poll(); }, POLL);
$("#retry").addEventListener("click", poll);

// ---- forms
function bodyOf(form) {
  const body = {};
  for (const [name, value] of new FormData(form)) {
    const field = form.elements[name], text = value.trim();
    if (name === "reason" && !text) continue; // the service has one of its own
    if (name === "symbols") body[name] = text.split(",").map((symbol) => symbol.trim()).filter(Boolean);
    else if (name === "engaged") body[name] = text === "true";
    else if (field.dataset?.whole === undefined) body[name] = text;
    else if (text) body[name] = Number.isNaN(Number(text.replaceAll(",", ""))) ? text : Number(text.replaceAll(",", ""));
  }
  if (body.engaged && !body.reason) body.reason = "halted on the page";
  return body;
}
function fieldOf(form, text) { // that the sentence is about
  const name = text.match(/^(\w+):/)?.[1] ?? (/no bars of|symbol/.test(text) ? "symbols" : /source/.test(text) ? "source" : "");
  return $(`[name="${name}"]`, form);
}
function fail(form, text, isFocused = true) {
  const error = $(".error", form), field = text && fieldOf(form, text);
  $$("[aria-invalid]", form).forEach((input) => input.removeAttribute("aria-invalid"));
  error.textContent = text;
  error.hidden = !text;
  if (!field) return;
  field.setAttribute("aria-invalid", "true");
  field.after(error);
  if (isFocused) field.focus();
}
document.addEventListener("submit", async (event) => {
  const form = event.target.closest("[data-post]");
  if (event.target.id === "locked") return;
  if (!form) return event.preventDefault();
  event.preventDefault();
  const button = $("button[type=submit]", form), done = $(".done", form);
  if (button.getAttribute("aria-disabled")) return;
  button.setAttribute("aria-disabled", "true");
  if (done) { done.textContent = "Launching …"; done.hidden = false; }
  try {
    const answer = await post(form.dataset.post, bodyOf(form)), open = Object.entries(answer.still_open ?? {});
    if (open.length || ($("[name=engaged][value=false]", form) && answer.kill_switch)) notify([answer.message, ...open.map(([account, reason]) => `Orders of ${account} may be open: ${reason}`)].join(" "));
    const hindrance = answer.bot && (answer.problem || answer.reason);
    if (hindrance) notify(`The bot ${answer.bot} was started, but ${answer.state === "active" ? "cannot trade" : `is ${answer.state}`}: ${hindrance}.`);
    fail(form, "");
    form.closest("dialog")?.close();
    if (done) done.textContent = [form.dataset.started, answer.note && `Note: ${answer.note}.`].filter(Boolean).join(" ");
  } catch (error) { fail(form, error.message); if (done) done.hidden = true; }
  button.removeAttribute("aria-disabled");
});

// ---- decisions are sent after some seconds, so that they can be undone; a further one sends the one before
let pending;
const toast = $("#toast");
function decide(text, send, undo) {
  flush();
  $("span", toast).textContent = `${text}. It is sent in ${UNDO / 1000} seconds.`;
  toast.hidden = false;
  pending = { send, undo, timer: setTimeout(flush, UNDO) };
}
function flush() {
  if (!pending) return;
  const { send, timer } = pending;
  clearTimeout(timer);
  pending = undefined;
  toast.hidden = true;
  send();
}
function undo() {
  if (!pending) return;
  clearTimeout(pending.timer);
  pending.undo?.();
  pending = undefined;
  toast.hidden = true;
  say("Undone; nothing was sent.");
}
$("button", toast).addEventListener("click", undo);
addEventListener("pagehide", flush);
function notify(text) { // of what has no field of its own
  $("#notice span").textContent = text;
  $("#notice").hidden = false;
}
$("#notice button").addEventListener("click", () => { $("#notice").hidden = true; });
const later = (text, path, body, undoing) => decide(text, () => post(path, body).catch((error) => { undoing?.(); notify(error.message); }), undoing);

// ---- schedules that a person runs now: the button says how far it is
const launches = {};
function showLaunches() {
  $$("[data-run-now]").filter(({ dataset }) => dataset.runNow in launches).forEach((button) => {
    button.textContent = launches[button.dataset.runNow] || "Run now";
    launches[button.dataset.runNow] || isLocked ? button.setAttribute("aria-disabled", "true") : button.removeAttribute("aria-disabled");
  });
}
function launch(name) {
  const show = (text) => { launches[name] = text; showLaunches(); };
  show("Launching …");
  const launched = () => { show("Launched"); say(`${name} is launched.`); setTimeout(show, LOST, ""); }; // by then its row has the run
  decide(`${name} runs now`, () => post(`/api/scheduler/${name}/run`).then(launched, (error) => { show(""); notify(error.message); }), () => show(""));
}

// ---- plans
const tabs = () => $$("[role=tab]");
const chosenPlan = () => $("[role=tab][aria-selected=true]")?.dataset.tab;
function choosePlan(id, step = 0) {
  const list = tabs(), at = list.findIndex((tab) => tab.dataset.tab === id);
  const next = list[(Math.max(0, at) + (at < 0 ? 0 : step) + list.length) % list.length];
  list.forEach((tab) => {
    tab.setAttribute("aria-selected", String(tab === next));
    tab.tabIndex = tab === next ? 0 : -1;
    $(`#plan-${tab.dataset.tab}`).hidden = tab !== next;
  });
  if (step) next?.scrollIntoView({ block: "nearest", inline: "nearest" });
  return next;
}
let edited; // id of the plan that an override made; it arrives only where it waits
function chooseEdited() {
  const tab = edited && $(`#tab-${edited}`);
  if (!tab) return;
  if (!document.activeElement.matches("[role=tabpanel] input")) choosePlan(edited); // else a person types
  const text = `Your edited plan of ${tab.dataset.of} waits for your approval.`;
  notify(text);
  say(text);
  edited = undefined;
}
async function notifyCuts(id) { // of a plan that does not wait, too
  const answer = await fetch(`/api/plans/${id}`), { cuts = [], status } = answer.ok ? await answer.json() : {};
  const named = cuts.slice(0, 3).map((cut) => cut.sentence), more = cuts.length > 3 ? `; and ${cuts.length - 3} more` : "";
  if (cuts.length) notify(`Limits cut your weights: ${named.join("; ")}${more}.${status === "waiting" ? " The edited plan waits for your approval." : ""}`);
}
// ---- edited weights: exact until a person types; limits and compliance are the service's
const number = (value, digits, signDisplay = "auto") => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits, signDisplay }).replace("-", "\u2212");
const signed = (value, digits) => number(value, digits, "exceptZero");
function editedWeights(panel) {
  return $$("tr[data-symbol]", panel).map((row) => {
    const input = $("input", row), typed = input.value.trim() === "" ? NaN : Number(input.value) / 100;
    return { row, symbol: row.dataset.symbol, before: Number(row.dataset.before), proposed: Number(row.dataset.after), after: input.exact ?? typed };
  });
}
function showEdits(panel) {
  const value = Number(panel.dataset.value), names = editedWeights(panel), cashRow = $("tfoot .order", panel), cashBefore = Number(cashRow.dataset.before);
  const wrong = names.find(({ after }) => !(after >= 0 && after <= 1)), cash = 1 - names.reduce((sum, { after }) => sum + after, 0);
  const rows = [...names, { row: cashRow, before: cashBefore, after: cash }], largest = Math.max(...names.map(({ after, before }) => Math.abs(after - before)), 1e-9);
  const turnover = rows.reduce((sum, { after, before }) => sum + Math.abs(after - before) / 2, 0);
  for (const { row, before, after } of wrong ? [] : rows) {
    const change = after - before, bar = $(".delta rect", row), length = (48 * Math.abs(change)) / largest, price = Number(row.dataset.price);
    $(".change", row).textContent = signed(100 * change, 1);
    if (value) $(".amount", row).textContent = signed(change * value, 0);
    if (price && value) $(".shares", row).textContent = signed((change * value) / price, 1);
    if (!bar) { $(".after", row).textContent = number(100 * after, 1); continue; }
    bar.setAttribute("class", change < 0 ? "sell" : "");
    bar.setAttribute("x", change < 0 ? 48 - length : 48);
    bar.setAttribute("width", length);
  }
  const check = $("[data-check]", panel), over = cash < -1e-6;
  check.className = wrong || over ? "error" : "hint";
  check.textContent = wrong ? `The weight of ${wrong.symbol} must be from 0 to 100 %.` : over ? `The names sum to ${number(100 * (1 - cash), 1)} %; lower some to 100 % or less.`
    : `Cash takes the rest, ${number(100 * cash, 1)} %. Turnover ${number(100 * turnover, 1)} %. Weights beyond a limit are cut, and what compliance finds is said.`;
  $("[data-weights]", panel).setAttribute("aria-disabled", String(Boolean(wrong || over)));
  if (wrong) return;
  const count = (sign) => names.filter(({ after, before }) => sign * (after - before) > 0).length;
  $(".turnover", panel).textContent = `${number(100 * turnover, 1)}\u00a0%`;
  $(".sides", panel).textContent = `${count(1)} buys, ${count(-1)} sells`;
}
function setWeights(panel, share) { // of the proposed change
  editedWeights(panel).forEach(({ row, before, proposed }) => {
    const input = $("input", row);
    input.exact = share === 1 ? proposed : before + share * (proposed - before);
    input.value = (100 * input.exact).toFixed(1);
  });
  showEdits(panel);
}
function edit() {
  const panel = $(`#plan-${chosenPlan()}`);
  if (!panel || panel.dataset.sent) return;
  const isOn = panel.toggleAttribute("data-editing");
  setWeights(panel, 1);
  $("[data-edit]", panel).setAttribute("aria-expanded", String(isOn));
  $(isOn ? "input.weight" : "[data-edit]", panel).focus();
}
document.addEventListener("input", ({ target }) => {
  if (!target.matches(".weight")) return;
  delete target.exact;
  showEdits(target.closest("[data-plan-id]"));
});

const WORDS = { approve: "approved", override: "overridden", reject: "rejected", skip: "skipped", equal: "judged as good as the holdings" };
const JUDGES = ["approve", "override", "reject"], REASONED = ["override", "reject"];
function act(what, isEdited = false) {
  const id = chosenPlan(), panel = id && $(`#plan-${id}`);
  if (!panel || panel.dataset.sent) return;
  const form = $("form", panel), reason = form.elements.reason.value.trim();
  const edits = isEdited ? editedWeights(panel).filter(({ after, proposed }) => Math.abs(after - proposed) > 1e-9) : [];
  if (isEdited && !edits.length) return fail(form, "No weight differs from the proposed one: approve, or change one.");
  if (REASONED.includes(what) && !reason) { fail(form, "Say why: the audit records it."); form.elements.reason.setAttribute("aria-invalid", "true"); return form.elements.reason.focus(); }
  fail(form, "");
  panel.dataset.sent = what;
  const weights = isEdited ? { weights: Object.fromEntries(edits.map(({ symbol, after }) => [symbol, after])) } : {};
  const send = () => post(`/api/plans/${id}/decision`, { kind: what, reason, ...weights }).then((event) => {
    if (!JUDGES.includes(what)) { // it still waits
      delete panel.dataset.sent;
      $(`[data-do=${what}]`, panel).setAttribute("aria-disabled", "true"); // once a plan
    }
    say(`Plan ${WORDS[what]}.`);
    edited = event.detail.edited ?? edited;
    chooseEdited();
    if (event.detail.edited) notifyCuts(event.detail.edited);
  }, (error) => {
    delete panel.dataset.sent;
    fail(form, error.message, false);
    notify(`The plan of ${panel.dataset.name} was not ${WORDS[what]}: ${error.message}`);
  });
  decide(`Plan of ${panel.dataset.name} ${WORDS[what]}`, send, () => { delete panel.dataset.sent; choosePlan(id); });
  choosePlan(id, 1);
}
document.addEventListener("click", (event) => {
  const target = event.target.closest("button, a");
  if (!target || isDisabled(target)) return;
  const { tab, plan, open, load, runNow, analyze, action } = target.dataset;
  if (tab) choosePlan(tab);
  if (plan) choosePlan(plan);
  if (target.dataset.do) act(target.dataset.do, "weights" in target.dataset);
  if ("edit" in target.dataset) edit();
  if (target.dataset.set) setWeights(target.closest("[data-plan-id]"), Number(target.dataset.set));
  if (open) show_dialog(open);
  if (target.hasAttribute("data-close")) target.closest("dialog").close();
  if (load) askToLoad(target);
  if (action) askToSwitch(target);
  if (runNow) launch(runNow);
  if (target.id === "stop") later("The search stops after this trial", "/api/nemorl-autoresearch/stop", { session_id: target.dataset.session });
  if (analyze) interpret(target);
  if (target.hasAttribute("data-dismiss")) target.closest(".answer").hidden = true;
});
document.addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (step && event.target.matches("[role=tab]")) choosePlan(chosenPlan(), step).focus();
});

// ---- dialogs
function show_dialog(id) { const dialog = $(`#${id}`), form = $("form", dialog); if (form) fail(form, ""); if (!dialog.open) dialog.showModal(); }
function ask(id, button) { // with the facts of the button
  $$(`#${id} [data-fill]`).forEach((element) => { element.textContent = button.dataset[element.dataset.fill]; element.hidden = !element.textContent; });
  show_dialog(id);
}
function askToLoad(button) {
  $("#load input[name=policy]").value = button.dataset.load;
  ask("load", button);
}
function askToSwitch(button) {
  const { bot, action } = button.dataset, form = $(`#bot-${action} form`);
  form.reset();
  form.dataset.post = `/api/bots/${encodeURIComponent(bot)}/${action}`;
  ask(`bot-${action}`, button);
}

// ---- what a person chose to see
function chooseAccount() {
  const select = $("#account"), names = [...select.options].map(({ value }) => value);
  $$(".ticker").filter(({ dataset }) => !names.includes(dataset.account)).forEach(({ dataset }) => select.append(new Option(dataset.account)));
  const chosen = select.value;
  $$("[data-account]").forEach((block) => { block.hidden = block.dataset.account !== chosen; });
}
function choosePeriod() {
  const chosen = $("input[name=period]:checked")?.value, wanted = $("#filter").value.trim().toLowerCase();
  $$("[data-period]").forEach((block) => { block.hidden = block.dataset.period !== chosen; });
  $$("[data-period] tbody tr").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
}
if ([...$("#account").options].some(({ value }) => value === recall("account"))) $("#account").value = recall("account");
$("#account").addEventListener("change", (event) => { remember("account", event.target.value);
  chooseAccount();
  const tab = tabs().find(({ dataset }) => dataset.of === event.target.value);
  if (tab) choosePlan(tab.dataset.tab);
});
document.addEventListener("change", (event) => {
  const { name, value } = event.target;
  if (name === "period" || name === "order") {
    $("#ratio .answer").hidden = true; // it read another view
 choosePeriod(); if (drawn.has($("#plot-ratio"))) draw($("#plot-ratio")); }
  if (name === "eval_mode") $$(".knobs").forEach((table) => { table.hidden = table.dataset.mode !== value; });
});
$("#filter").addEventListener("input", choosePeriod);
const fold = () => $$("details.fold").forEach((details) => { details.open = !narrow(); });

// ---- charts
const spread = (rows, tone, thickness = 1) => ({
  type: "data", symmetric: false, color: tone, thickness, width: 0,
  array: rows.map((r) => (r.sharpe_high ?? r.sharpe) - r.sharpe), arrayminus: rows.map((r) => r.sharpe - (r.sharpe_low ?? r.sharpe)),
});
const dots = (rows, x, name, marker, tone, more) => ({
  x, y: rows.map((r) => r.sharpe), mode: "markers", name, marker, error_y: spread(rows, tone),
  customdata: rows.map((r) => [r.sharpe_low === null ? "" : ` [${r.sharpe_low.toFixed(2)}, ${r.sharpe_high.toFixed(2)}]`]), hovertemplate: "%{text}: %{y:.2f}%{customdata[0]}<extra>%{fullData.name}</extra>", ...more,
});
const rowsOf = (name) => [...(series[name]?.rows.values() ?? [])];
function thin(points) { // every second point while there are more than a curve holds
  while (points.length > MAX_POINTS) points = points.filter((_, i) => i % 2 || i === points.length - 1);
  return points;
}

const CHARTS = {
  trials() {
    const { base, budget } = series.trials.facts, rows = rowsOf("trials").sort((a, b) => a.trial - b.trial), last = Math.max(budget ?? 0, rows.length);
    const x = rows.map((r) => r.trial), some = (keep) => rows.filter((r) => r.sharpe !== null && keep(r));
    const group = (keep, name, marker, tone) => { const some_rows = some(keep); return dots(some_rows, some_rows.map((r) => r.trial), name, marker, tone, { text: some_rows.map((r) => `trial ${r.trial}`) }); };
    const cut = ["pruned", "infeasible", "failed"], other = color("--c-other");
    return [[
      { x: [0.5, last + 0.5], y: [base, base], mode: "lines", line: { color: color("--soft"), dash: "dot", width: 1.5 }, hovertemplate: "base %{y:.2f}<extra></extra>" },
      group((r) => cut.includes(r.standing), "pruned", { symbol: "x-thin", size: 7, line: { width: 1.5, color: other } }, "rgba(0,0,0,0)"),
      group((r) => !cut.includes(r.standing) && !r.is_kept, "not kept", { symbol: "circle-open", size: 7, color: other, line: { width: 1.5 } }, color("--c-other", 0.4)),
      { x, y: rows.map((r) => r.luck), mode: "lines", line: { color: color("--bad"), dash: "dash", width: 1.5 }, hovertemplate: "luck bar %{y:.2f}<extra></extra>" },
      { x, y: rows.map((r) => r.best), mode: "lines", line: { color: color("--c-best"), width: 2.5, shape: "hv" }, hovertemplate: "best so far %{y:.2f}<extra></extra>" },
      group((r) => r.is_kept, "kept", { size: 9, color: color("--c-policy") }, color("--c-policy")),
    ], layout({ xaxis: axis({ range: [0.4, last + 0.6], title: { text: "trial" }, showgrid: false }), yaxis: axis({ title: titled("net Sharpe ratio") }) }), rows];
  },
  curve() {
    const points = rowsOf("curve").sort((a, b) => a.timesteps - b.timesteps), seeds = [...new Set(points.map((p) => p.seed))].sort((a, b) => a - b);
    const traces = seeds.map((seed) => {
      const line = thin(points.filter((p) => p.seed === seed));
      return { x: line.map((p) => p.timesteps), y: line.map((p) => p.mean_reward), mode: "lines", name: `seed ${seed}`, line: { color: color(seeds.length > 1 ? "--c-seed" : "--c-policy", seeds.length > 1 ? 0.6 : 1), width: seeds.length > 1 ? 1 : 2.5 }, hovertemplate: "%{x:,} steps: %{y:.4f}<extra>%{fullData.name}</extra>" };
    });
    if (seeds.length > 1) {
      const sums = new Map();
      points.forEach((p) => sums.set(p.timesteps, [...(sums.get(p.timesteps) ?? []), p.mean_reward]));
      const mean = thin([...sums].filter(([, rewards]) => rewards.length === seeds.length));
      traces.push({ x: mean.map(([steps]) => steps), y: mean.map(([, rewards]) => rewards.reduce((a, b) => a + b) / rewards.length), mode: "lines", name: "mean", line: { color: color("--c-policy"), width: 2.5 }, hovertemplate: "%{x:,} steps: %{y:.4f}<extra>mean</extra>" });
    }
    return [traces, layout({ xaxis: axis({ range: [0, series.curve.facts.total_timesteps], title: { text: "timesteps" }, showgrid: false, tickformat: "~s" }), yaxis: axis({ nticks: 5, tickformat: ".4~g", title: titled("mean reward a step") }) }), points];
  },
  ratio() {
    const chosen = $("input[name=period]:checked")?.value, byTime = $("input[name=order]:checked").value === "time";
    const rows = rowsOf("ratio").filter((r) => r.view === chosen).sort(byTime ? (a, b) => (a.finished_at < b.finished_at ? -1 : 1) : (a, b) => b.sharpe - a.sharpe);
    const x = rows.map((_, i) => i + 1), last = rows.length, least = series.ratio.facts.min_deflated;
    let highest = -Infinity;
    const running = rows.map((r) => (highest = Math.max(highest, r.sharpe)));
    const group = (kind, marker, tone) => { const at = x.filter((i) => rows[i - 1].kind === kind), some = at.map((i) => rows[i - 1]); return dots(some, at, kind, marker, tone, { text: some.map((r) => r.experiment) }); };
    return [[
      { x, y: rows.map((r) => r.max_drawdown), type: "bar", yaxis: "y2", marker: { color: color("--c-loss", 0.35) }, width: last < 12 ? 0.12 : 0.7, hovertemplate: "max drawdown %{y:.0%}<extra></extra>" },
      { x, y: running, mode: "lines", visible: byTime, line: { color: color("--c-best"), width: 2.5, shape: "hv" }, hovertemplate: "best so far %{y:.2f}<extra></extra>" },
      group("trial", { size: 7, symbol: "circle-open", color: color("--c-trial"), line: { width: 1.5 } }, color("--c-other", 0.5)),
      group("run", { size: 10, color: color("--c-policy") }, color("--c-policy")),
      { x, y: rows.map((r) => r.deflated_sharpe), mode: "markers", yaxis: "y3", marker: { size: 5, symbol: "circle-open", color: color("--c-other") }, hovertemplate: "deflated %{y:.2f}<extra></extra>" },
      { x, y: rows.map((r) => r.deflated_information_ratio), mode: "markers", yaxis: "y3", marker: { size: 8, color: color("--c-policy") }, hovertemplate: "over the best baseline, deflated %{y:.2f}<extra></extra>" },
      { x: [0.4, last + 0.6], y: [least, least], mode: "lines", yaxis: "y3", line: { color: color("--bad"), dash: "dash", width: 1.5 }, hoverinfo: "skip" },
    ], layout({
      margin: { l: 48, r: 48, t: 8, b: 36 }, xaxis: axis({ range: [0.2, last + 0.8], title: { text: byTime ? "completed, oldest first" : "rank" }, showgrid: false, anchor: "y3", tickformat: "d", nticks: Math.min(12, last + 1) }),
      yaxis: axis({ domain: [0.27, 1], title: titled("net Sharpe ratio") }),
      yaxis2: axis({ domain: [0.27, 1], overlaying: "y", side: "right", range: [1.7, 0], tickvals: [0, 0.25, 0.5], tickformat: ".0%", showgrid: false }),
      yaxis3: axis({ domain: [0, 0.17], range: [-0.06, 1.1], tickvals: [0, 0.5, least], title: titled("deflated") }),
    }), rows.toSorted((a, b) => (a.finished_at < b.finished_at ? -1 : 1))]; // read by time: in rank order it always falls
  },
};
const drawn = new Set(), waiting = new Set();
function draw(plot) { // at most four times a second
  if (waiting.has(plot)) return;
  waiting.add(plot);
  setTimeout(async () => {
    waiting.delete(plot);
    try {
      const Plotly = await loadPlotly(), [traces, how] = CHARTS[plot.id.slice(5)]();
      $(".idle", plot)?.remove();
      await Plotly.react(plot, traces, how, { displayModeBar: false, responsive: true });
    } catch { drawn.delete(plot); } // the sentence in the plot stays
  }, drawn.has(plot) ? 100 : 0);
  drawn.add(plot);
}
const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => { near.unobserve(target); draw(target); }), { rootMargin: "300px" });

// ---- analyze: only when asked
async function interpret(button) {
  const figure = button.closest("figure"), answer = $(".answer", figure), plot = $(".plot", figure), text = button.textContent;
  button.setAttribute("aria-disabled", "true");
  button.textContent = "Reading the chart …";
  try {
    const image = await (await loadPlotly()).toImage(plot, { format: "png", width: 1200, height: 560 });
    const chart = plot.id.slice(5), rows = CHARTS[chart]()[2];
    const reading = await post("/api/continuous-rl/interpret-chart", { kind: button.dataset.analyze, image_b64: image, context: { ...series[chart].facts, rows } });
    const list = document.createElement("ul"), foot = document.createElement("footer");
    list.append(...reading.bullets.map((bullet) => Object.assign(document.createElement("li"), { textContent: bullet })));
    foot.append(...[reading.model, `${reading.seconds.toFixed(1)} s`, `read at ${$("[data-clock]").textContent}`].map((word) => Object.assign(document.createElement("span"), { textContent: word })));
    foot.append(Object.assign(document.createElement("button"), { type: "button", className: "plain small", textContent: "Hide" }));
    foot.lastChild.toggleAttribute("data-dismiss", true);
    const note = Object.assign(document.createElement("p"), { className: "hint warn", textContent: reading.note, hidden: !reading.note });
    answer.replaceChildren(list, note, foot);
  } catch (error) { answer.replaceChildren(Object.assign(document.createElement("p"), { className: "error", textContent: error.message })); }
  answer.hidden = false;
  button.textContent = text;
  button.removeAttribute("aria-disabled");
}

// ---- keyboard: single keys, off while a field has the focus
function go(i) {
  const phase = $$(".phase")[i], head = phase && $("h2", phase);
  if (!head) return;
  phase.scrollIntoView();
  head.tabIndex = -1;
  head.focus({ preventScroll: true });
}
function isInView() { // a key acts on plans that a person sees
  const { top, bottom } = $("#decisions").getBoundingClientRect();
  if (top < innerHeight && bottom > 0) return true;
  $("#decisions").scrollIntoView();
  return false;
}
const press = (button) => isInView() && $$(`[role=tabpanel] ${button}`).find((shown) => shown.checkVisibility())?.click();
const KEYS = [
  ["1 – 6", "go to a section", /^[1-6]$/, (key) => go(Number(key) - 1)],
  ["j, k", "next, previous waiting plan", /^[jk]$/, (key) => isInView() && choosePlan(chosenPlan(), key === "j" ? 1 : -1)],
  ["a", "approve the plan shown", /^a$/, () => press("[data-do=approve]")],
  ["e", "edit its weights", /^e$/, () => press("[data-edit][aria-expanded]")],
  ["o", "override it: keep the holdings, or send the edited weights", /^o$/, () => press("[data-do=override]")],
  ["x", "reject it", /^x$/, () => press("[data-do=reject]")],
  ["=, s", "as good as the holdings; skip: neither judges it", /^[=s]$/, (key) => press(`[data-do=${key === "s" ? "skip" : "equal"}]`)],
  ["u", "undo, until it is sent", /^u$/, undo],
  ["/", "filter runs and trials", /^\/$/, () => $("#filter").focus()],
  ["h", "halt trading: asks first", /^h$/, () => isLocked || show_dialog($("[data-open=resume]") ? "resume" : "halt")],
  ["?", "this list", /^\?$/, () => show_dialog("keys")],
  ["Esc", "close", /^$/, () => {}],
];
KEYS.forEach(([key, what]) => {
  const term = document.createElement("dt");
  term.append(Object.assign(document.createElement("kbd"), { textContent: key }));
  $("#keymap").append(term, Object.assign(document.createElement("dd"), { textContent: what }));
});
$("#keys-on").checked = recall("keys") !== "off";
$("#keys-on").addEventListener("change", (event) => remember("keys", event.target.checked ? "on" : "off"));
document.addEventListener("keydown", (event) => {
  if (event.repeat || event.ctrlKey || event.metaKey || event.altKey || !$("#keys-on").checked || $("dialog[open]")) return;
  if (event.target.matches("input:not([type=radio]), select, textarea")) { if (event.key === "Escape") event.target.blur(); return; }
  const found = KEYS.find(([, , pattern]) => pattern.test(event.key));
  if (found) { event.preventDefault(); found[3](event.key); }
});

// ---- which section is in view
const links = $$(".rail a[href^='#']");
const spy = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => links.forEach((link) => {
  link.hash === `#${target.id}` ? link.setAttribute("aria-current", "true") : link.removeAttribute("aria-current");
})), { rootMargin: "-20% 0px -70% 0px" });
links.forEach((link) => { if ($(link.hash)) spy.observe($(link.hash)); });

// ---- start
Object.entries(JSON.parse($("#data").textContent)).forEach(([name, change]) => takeSeries(name, change));
$$(".plot").forEach((plot) => near.observe(plot));
for (const query of ["(prefers-color-scheme: dark)", "(max-width: 48rem)"]) matchMedia(query).addEventListener("change", () => { fold(); drawn.forEach(draw); });
fold();
setTheme();
chooseAccount();
choosePeriod();
catchUp().catch(() => {});
navigator.locks ? navigator.locks.request("nvtrader-stream", lead) : lead();
