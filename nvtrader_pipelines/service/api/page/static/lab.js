"use strict";
// Pages of the RL Lab: the server renders them. This draws their charts, replays decisions, and sends forms.

const element = (tag, properties = {}, ...children) => { const made = Object.assign(document.createElement(tag), properties); made.append(...children); return made; };

// ---- requests
const exact = (_, value, context) => (Number.isInteger(value) && !Number.isSafeInteger(value) && context?.source ? context.source : value); // ids with more digits than a number holds
async function read(url) {
  const answer = await fetch(url);
  if (!answer.ok) throw new Error(await sentence(answer));
  return JSON.parse(await answer.text(), exact);
}
function fail(root, text) { const place = $(".error", root); place.textContent = text; place.hidden = !text; }

// ---- numbers as on the page
const MINUS = "\u2212";
const format = (value, digits = 2, sign = false) => value === null || value === undefined ? "–" : `${sign && Number(value.toFixed(digits)) > 0 ? "+" : ""}${(Number(value.toFixed(digits)) || 0).toFixed(digits)}`.replace("-", MINUS);
const percent = (value, digits = 1, sign = false) => value === null || value === undefined ? "–" : `${format(100 * value, digits, sign)}\u00a0%`;

// ---- charts
const STYLES = { // an account keeps tone and dash on every page
  equal_weight: ["--c-equal", "solid"], buy_and_hold: ["--c-hold", "dash"], anchor: ["--c-anchor", "dashdot"],
  minimum_variance: ["--c-variance", "dot"], mean_cvar: ["--ink", "dashdot"],
};
const TONES = ["--c-policy", "--c-equal", "--c-hold", "--c-anchor", "--c-sky", "--c-variance", "--c-yellow"];
const DASHES = ["solid", "dash", "dashdot", "dot"];
const readable = (name) => (name === "equal_weight" ? "1/N" : name.replaceAll("_", " "));
function key(name, entries) { // [tone, dash, text, figure]
  const list = $(`#key-${name}`);
  if (!list) return;
  list.replaceChildren(...entries.map(([tone, dash, text, figure]) => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), line = document.createElementNS(svg.namespaceURI, dash === "area" ? "rect" : "line");
    svg.setAttribute("viewBox", "0 0 22 10");
    svg.setAttribute("aria-hidden", "true");
    const shape = dash === "area" ? { width: 22, height: 10, fill: `var(${tone})` } : { x1: 0, x2: 22, y1: 5, y2: 5, stroke: `var(${tone})`, "stroke-width": 2.5, "stroke-dasharray": { solid: "", dash: "6 3", dot: "2 2", dashdot: "6 2 2 2" }[dash] };
    Object.entries(shape).forEach(([attribute, value]) => line.setAttribute(attribute, value));
    svg.append(line);
    return element("li", {}, svg, element("span", {}, text, " ", element("b", { textContent: figure })));
  }));
}

let curves; // of the run or the account, read once
const readCurves = () => (curves ??= read(location.pathname.replace(/\/$/, "").replace(/^\/lab\/(.*)/, "/api/$1/curves").replace(/^\/accounts\//, "/api/portfolio/curves?account=")));
let figures; // of the search, read once
const readFigures = () => (figures ??= read(`${location.pathname.replace(/\/$/, "")}/charts`));
const CHARTS = {
  async equity() {
    const { equity } = await readCurves();
    const style = (account, i) => (account.kind === "ensemble" ? ["--c-policy", "solid"] : STYLES[account.policy] ?? [TONES[i % TONES.length], DASHES[i % DASHES.length]]);
    key("equity", equity.map((account, i) => [...style(account, i), readable(account.policy), `${format(account.equity.at(-1), 1)}×`]));
    const traces = equity.toReversed().flatMap((account) => {
      const [tone, dash] = style(account, equity.indexOf(account)), width = account.kind === "ensemble" ? 2.5 : 1.25, line = { color: color(tone), dash, width };
      const shared = { x: account.sessions, mode: "lines", name: readable(account.policy), line };
      return [
        { ...shared, y: account.equity, hovertemplate: "%{x}: %{y:.2f}×<extra>%{fullData.name}</extra>" },
        { ...shared, y: account.drawdown.map((value) => -value), yaxis: "y2", line: { ...line, width: width / 1.6 }, hovertemplate: "%{x}: %{y:.1%}<extra>%{fullData.name}</extra>" },
      ];
    });
    return [traces, layout({ xaxis: axis({ showgrid: false, anchor: "y2" }), yaxis: axis({ type: "log", domain: [0.36, 1], ticksuffix: "×", nticks: 6, title: titled("equity after costs") }), yaxis2: axis({ domain: [0, 0.3], tickformat: ".0%", nticks: 4, title: titled("drawdown") }) })];
  },
  async gross() {
    const { gross: { sessions, gross, before_cap } } = await readCurves();
    const lines = [["--c-equal", "before the cap", before_cap], ["--c-policy", "at the close", gross]].filter((line, i) => i || before_cap.some((value, j) => value > gross[j]));
    key("gross", lines.map(([tone, name, values]) => [tone, "solid", name, `at most ${format(Math.max(...values))}`]));
    return [lines.map(([tone, name, y]) => ({ x: sessions, y, mode: "lines", name, line: { color: color(tone), width: 1.25 }, hovertemplate: "%{x}: %{y:.2f}<extra>%{fullData.name}</extra>" })), layout({ xaxis: axis({ showgrid: false }), yaxis: axis({ nticks: 6, title: titled("gross") }) })];
  },
  async account() { // equity of an account beside its references
    const { sessions, equity, drawdown, missing } = await readCurves(), names = Object.keys(equity);
    const style = (name) => ({ account: ["--c-policy", "solid"], equal_weight: STYLES.equal_weight, back_test: ["--c-sky", "dash"] }[name] ?? ["--c-anchor", "dashdot"]);
    $("#missing").textContent = missing ? `There is no back-test: ${missing}.` : "";
    key("account", names.map((name) => [...style(name), readable(name), percent((equity[name].at(-1) ?? 1) - 1, 2, true)]));
    const traces = names.toReversed().map((name) => { const [tone, dash] = style(name); return { x: sessions, y: equity[name], mode: sessions.length > 2 ? "lines" : "lines+markers", name: readable(name), line: { color: color(tone), dash, width: name === "account" ? 2.5 : 1.5 }, hovertemplate: "%{x}: %{y:.4f}×<extra>%{fullData.name}</extra>" }; });
    traces.push({ x: sessions, y: drawdown.map((value) => -value), yaxis: "y2", mode: "lines", name: "drawdown", line: { color: color("--c-policy"), width: 1.25 }, hovertemplate: "%{x}: %{y:.2%}<extra>%{fullData.name}</extra>" });
    return [traces, layout({ xaxis: axis({ showgrid: false, anchor: "y2" }), yaxis: axis({ domain: [0.36, 1], ticksuffix: "×", nticks: 6, title: titled("equity after costs") }), yaxis2: axis({ domain: [0, 0.3], tickformat: ".1%", nticks: 4, title: titled("drawdown") }) })];
  },
  async profit() { // of an account by session
    const { sessions, profit } = await readCurves();
    return [[{ x: sessions.slice(1), y: profit.slice(1), type: "bar", marker: { color: profit.slice(1).map((value) => color(value < 0 ? "--c-anchor" : "--c-hold")) }, hovertemplate: "%{x}: %{y:+,.2f}<extra></extra>" }], layout({ xaxis: axis({ showgrid: false }), yaxis: axis({ nticks: 4, title: titled("profit") }) })];
  },
  async name() { // closes of a name with an account's trades
    const { account } = $("#name").dataset, { symbol, sessions, close, weight, fills } = await read(`/accounts/${account}/names/${encodeURIComponent($("#name").value)}`);
    if (symbol !== $("#name").value) return CHARTS.name(); // another was chosen meanwhile
    const closes = new Map(sessions.map((session, i) => [session, close[i]])), drawnFills = fills.filter((fill) => closes.has(fill.session));
    const marks = (side, tone, shape) => { const own = drawnFills.filter((fill) => fill.side === side); return { x: own.map((fill) => fill.session), y: own.map((fill) => closes.get(fill.session)), customdata: own.map((fill) => [fill.quantity, fill.price]), mode: "markers", name: side, marker: { color: color(tone), symbol: shape, size: 8 }, hovertemplate: `%{x}: ${side} %{customdata[0]:,.4~f} at %{customdata[1]:,.2f}<extra></extra>` }; };
    key("name", [["--c-policy", "solid", symbol, format(close.at(-1), 2)], ["--c-hold", "area", "bought", `${drawnFills.filter(({ side }) => side === "buy").length}×`], ["--c-anchor", "area", "sold", `${drawnFills.filter(({ side }) => side === "sell").length}×`]]);
    return [[{ x: sessions, y: close, mode: "lines", name: symbol, line: { color: color("--c-policy"), width: 1.5 }, hovertemplate: "%{x}: %{y:,.2f}<extra>%{fullData.name}</extra>" }, marks("buy", "--c-hold", "triangle-up"), marks("sell", "--c-anchor", "triangle-down"),
      { x: sessions, y: weight, yaxis: "y2", mode: "lines", fill: "tozeroy", name: "weight", line: { color: color("--c-other"), width: 1, shape: "hv" }, hovertemplate: "%{x}: %{y:.1%}<extra>%{fullData.name}</extra>" }],
    layout({ xaxis: axis({ showgrid: false, anchor: "y2" }), yaxis: axis({ domain: [0.36, 1], nticks: 6, title: titled("adjusted close") }), yaxis2: axis({ domain: [0, 0.3], tickformat: ".0%", nticks: 4, title: titled("weight") }) })];
  },
  async rewards() {
    const { rewards } = await readCurves(), style = (curve, i) => (curve.term === "total" ? ["--c-policy", "solid"] : [["--c-hold", "--c-equal", "--c-anchor", "--c-variance", "--ink"][i % 5], DASHES[(i % 3) + 1]]);
    const sums = rewards.map((curve) => `${curve.term.replaceAll("_", " ")} ${format(curve.total.at(-1), 1, true)}`);
    $("#sums").textContent = `Running sums over the tests: ${sums.join(", ")}.`;
    key("rewards", rewards.map((curve, i) => [...style(curve, i), curve.term.replaceAll("_", " "), format(curve.total.at(-1), 1, true)]));
    return [rewards.map((curve, i) => { const [tone, dash] = style(curve, i); return { x: curve.sessions, y: curve.total, mode: "lines", name: curve.term.replaceAll("_", " "), line: { color: color(tone), dash, width: curve.term === "total" ? 2.5 : 1.5 }, hovertemplate: "%{x}: %{y:.3f}<extra>%{fullData.name}</extra>" }; }),
      layout({ xaxis: axis({ showgrid: false }), yaxis: axis({ title: titled("reward, running sum") }) })];
  },
  async weights() {
    const { weights, weight_sessions } = await readCurves(), tone = (band, i) => (band.name === "cash" ? "--line" : i === weights.length - 2 && / others$/.test(band.name) ? "--c-other" : TONES[i % TONES.length]);
    const named = weights.slice(0, 3).map((band) => `${band.name} ${percent(band.mean)}`);
    $("#largest").textContent = weights.length ? `Share of equity after each trade. Largest on average: ${named.join(", ")}; cash ${percent(weights.at(-1).mean)}.` : "The names change between folds, so that no bands can be drawn.";
    key("weights", weights.map((band, i) => [tone(band, i), "area", band.name, percent(band.mean)]));
    const areas = (sign, stackgroup) => weights.map((band, i) => ({ x: weight_sessions, y: band.weights.map((value) => sign * Math.max(0, sign * value)), customdata: band.weights, name: band.name, mode: "lines", stackgroup, line: { width: 0, shape: "hv", color: color(tone(band, i)) }, fillcolor: color(tone(band, i)), hovertemplate: "%{x}: %{customdata:.1%}<extra>%{fullData.name}</extra>" }));
    const isLevered = weights.some((band) => band.weights.some((value) => value < -1e-9)); // debt and short positions are below zero
    return [isLevered ? [...areas(1, "weights"), ...areas(-1, "debt")] : areas(1, "weights"), layout({ xaxis: axis({ showgrid: false }), yaxis: axis({ ...(!isLevered && { range: [0, 1] }), tickformat: ".0%", showgrid: false }) })];
  },
  async training() {
    const { training } = await readCurves(), folds = [...new Set(training.map(({ fold }) => fold))], columns = narrow() ? 2 : 4, rows = Math.ceil(folds.length / columns);
    const values = training.flatMap(({ mean_reward }) => mean_reward).filter((value) => value !== null), range = [Math.min(...values), Math.max(...values)];
    const traces = [], more = { annotations: [], grid: { rows, columns, pattern: "independent", xgap: 0.08, ygap: 0.22 } };
    folds.forEach((fold, i) => {
      const [x, y] = i ? [`x${i + 1}`, `y${i + 1}`] : ["x", "y"], of_fold = training.filter((curve) => curve.fold === fold), sums = new Map();
      for (const curve of of_fold) {
        if (of_fold.length > 1) traces.push({ x: curve.timesteps, y: curve.mean_reward, xaxis: x, yaxis: y, mode: "lines", name: `fold ${fold}, seed ${curve.seed}`, line: { color: color("--c-seed", 0.5), width: 0.8 }, hovertemplate: "%{x:,}: %{y:.4f}<extra>%{fullData.name}</extra>" });
        curve.timesteps.forEach((steps, j) => sums.set(steps, [...(sums.get(steps) ?? []), curve.mean_reward[j]]));
      }
      const mean = [...sums].filter(([, several]) => several.length === of_fold.length).sort(([a], [b]) => a - b);
      traces.push({ x: mean.map(([steps]) => steps), y: mean.map(([, several]) => several.reduce((a, b) => a + b) / several.length), xaxis: x, yaxis: y, mode: "lines", name: `fold ${fold}`, line: { color: color("--c-policy"), width: 2 }, hovertemplate: "%{x:,}: %{y:.4f}<extra>%{fullData.name}</extra>" });
      more[`xaxis${i ? i + 1 : ""}`] = axis({ showgrid: false, tickformat: "~s", nticks: 3 });
      more[`yaxis${i ? i + 1 : ""}`] = axis({ range, nticks: 4, tickformat: ".3~g", showticklabels: i % columns === 0 });
      more.annotations.push({ text: `fold ${fold}`, xref: `${x} domain`, yref: `${y} domain`, x: 0, y: 1.12, showarrow: false, font: { size: 12 } });
    });
    return [traces, layout({ ...more, margin: { l: 48, r: 10, t: 20, b: 32 } })];
  },
  async replay() { return player.chart(); },
  async parallel() { // Optuna's figure in the page's colors
    const { data, layout: { annotations, shapes, xaxis } } = (await readFigures()).parallel, trials = data.filter(({ mode }) => mode === "lines").sort((a, b) => a.y[0] - b.y[0]); // the best on top
    $("#plot-parallel").style.minWidth = `${4.5 * xaxis.ticktext.length}rem`;
    return [trials.map((trial) => ({ ...trial, opacity: 1, line: { width: 1.5, color: color("--c-policy", 0.08 + 0.92 * trial.y[0] ** 3) } })), layout({
      margin: { l: 64, r: 20, t: 12, b: 40 }, xaxis: axis({ ...xaxis, ticktext: xaxis.ticktext.map(words), tickangle: -30 }), yaxis: { visible: false, range: [-0.04, 1.06] },
      annotations: annotations.map((mark) => ({ ...mark, bgcolor: color("--card", 0.75), font: { size: 11, color: color("--soft") } })), shapes: shapes.map((shape) => ({ ...shape, line: { color: color("--edge"), width: 1 } })) })];
  },
  async slices() {
    const { data, layout: drawn } = (await readFigures()).slices, columns = narrow() ? 2 : 4, rows = Math.ceil(data.length / columns), more = {};
    $("#plot-slices").style.height = `${12 * rows}rem`;
    data.forEach((_, i) => {
      const n = i ? i + 1 : "", { title, type } = drawn[`xaxis${n}`];
      more[`xaxis${n}`] = axis({ type, nticks: 4, tickformat: type && "~e", tickangle: 0, title: { text: words(title.text), standoff: 4 } });
      more[`yaxis${n}`] = axis({ nticks: 4, matches: i ? "y" : undefined, showticklabels: i % columns === 0 });
    });
    const tones = [[0, color("--c-policy", 0.3)], [1, color("--c-policy")]], marker = ({ marker }) => ({ size: 7, color: marker.color, colorscale: tones, line: { width: 0.5, color: color("--card") } });
    return [data.map((trace) => ({ ...trace, marker: marker(trace), hovertemplate: "%{x:.4~g}: Sharpe ratio %{y:.2f}<extra></extra>" })), layout({ ...more, grid: { rows, columns, pattern: "independent", xgap: 0.1, ygap: 0.35 } })];
  },
  async importances() {
    const { data: [bars] } = (await readFigures()).importances;
    $("#plot-importances").style.height = `${4 + 1.6 * bars.y.length}rem`;
    return [[{ ...bars, y: bars.y.map(words), text: bars.x.map((share) => percent(share, 0)), marker: { color: color("--c-policy") }, hovertemplate: "%{y}: %{x:.1%}<extra></extra>" }], layout({ xaxis: axis({ tickformat: ".0%", range: [0, 1.15 * Math.max(...bars.x)] }), yaxis: axis({ showgrid: false }) })];
  },
  async compare() {
    const accounts = JSON.parse($("#data").textContent), style = (i) => [TONES[i % TONES.length], DASHES[i % DASHES.length]];
    key("compare", accounts.map((account, i) => [...style(i), account.policy, `${format(account.equity.at(-1), 1)}×`]));
    const traces = accounts.flatMap((account, i) => {
      const [tone, dash] = style(i), line = { color: color(tone), dash, width: 1.75 }, shared = { x: account.sessions, mode: "lines", name: account.policy };
      return [{ ...shared, y: account.equity, line, hovertemplate: "%{x}: %{y:.2f}×<extra>%{fullData.name}</extra>" }, { ...shared, y: account.drawdown.map((value) => -Math.abs(value)), yaxis: "y2", line: { ...line, width: 1 }, hovertemplate: "%{x}: %{y:.1%}<extra>%{fullData.name}</extra>" }];
    });
    return [traces, layout({ xaxis: axis({ showgrid: false, anchor: "y2" }), yaxis: axis({ type: "log", domain: [0.36, 1], ticksuffix: "×", nticks: 6 }), yaxis2: axis({ domain: [0, 0.3], tickformat: ".0%", nticks: 4 }) })];
  },
};
const drawn = new Set();
async function draw(plot) {
  drawn.add(plot);
  try {
    const [Plotly, [traces, how]] = await Promise.all([loadPlotly(), CHARTS[plot.id.slice(5)]()]);
    $(".idle", plot)?.remove();
    await Plotly.react(plot, traces, how, { displayModeBar: false, responsive: true });
  } catch (error) { drawn.delete(plot); plot.replaceChildren(element("p", { className: "idle", textContent: error.message })); }
}
const near = new IntersectionObserver((entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => { near.unobserve(target); draw(target); }), { rootMargin: "300px" });

// ---- replay: decision by decision
const player = {
  steps: undefined, at: 0, timer: undefined,
  async load() {
    const root = $("#player");
    this.pause();
    fail(root, "");
    try { this.steps = await read(`/lab/runs/${root.dataset.run}/decisions/${$("#fold").value}`); } catch (error) { return fail(root, error.message); }
    const cursor = $("#cursor");
    cursor.max = this.steps.decisions.length - 1;
    this.show(0);
  },
  show(at) {
    if (!this.steps) return;
    const { decisions, symbols } = this.steps;
    this.at = Math.min(Math.max(at, 0), decisions.length - 1);
    const now = decisions[this.at], before = decisions[this.at - 1];
    $("#cursor").value = this.at;
    $("#place").textContent = `${now.session}, decision ${this.at + 1} of ${decisions.length}`;
    $("#now-equity").textContent = now.equity === null ? "–" : `${format(now.equity, 3)}×`;
    $("#now-drawdown").textContent = percent(now.drawdown);
    $("#now-turnover").textContent = percent(now.turnover);
    $("#now-guards").closest("div").hidden = now.guards === null;
    $("#now-guards").textContent = now.guards?.join("; ") || "none";
    const rewards = before ? Object.entries(before.rewards) : [], most = Math.max(1e-9, ...rewards.map(([, value]) => Math.abs(value)));
    $("#now-rewards").replaceChildren(...(rewards.length ? rewards.map(([term, value]) => element("tr", {}, element("th", { scope: "row", textContent: term.replaceAll("_", " ") }), element("td", { className: "n", textContent: format(value, 4, true) }), element("td", {}, bar(value / most)))) : [element("tr", {}, element("td", { className: "soft", textContent: "the first decision of the fold" }))]));
    const trades = now.after.map((after, i) => after - now.before[i]), largest = Math.max(0.01, ...trades.slice(0, -1).map(Math.abs)); // cash is the sum of the others
    $("#now-weights").replaceChildren(...symbols.map((name, i) => element("tr", {}, element("th", { scope: "row", textContent: name }), element("td", { className: "n", textContent: format(100 * now.before[i], 1) }), element("td", { className: "n", textContent: format(100 * now.after[i], 1) }), element("td", { className: "n", textContent: format(100 * trades[i], 1, true) }), element("td", {}, bar(Math.max(-1, Math.min(1, trades[i] / largest)))))));
    if (drawn.has($("#plot-replay"))) draw($("#plot-replay"));
  },
  chart() { // nothing after the cursor, axes included
    if (!this.steps) return [[], layout({})];
    const { sessions, equity, decisions } = this.steps, now = decisions[this.at].session, end = sessions.findLastIndex((session) => session <= now) + 1;
    const x = sessions.slice(0, end), y = equity.slice(0, end), days = (n) => new Date(Date.parse(now) + n * 86400000).toISOString().slice(0, 10);
    return [[{ x, y, mode: "lines", line: { color: color("--c-policy"), width: 1.75 }, hovertemplate: "%{x}: %{y:.3f}×<extra></extra>" }, { x: x.slice(-1), y: y.slice(-1), mode: "markers", marker: { color: color("--c-policy"), size: 8 }, hoverinfo: "skip" }], layout({ xaxis: axis({ showgrid: false, type: "date", nticks: 6, ...(x.length < 3 && { range: [days(-10), days(1)] }) }), yaxis: axis({ ticksuffix: "×", nticks: 4 }) })];
  },
  play() {
    if (this.timer) return this.pause();
    if (this.at === this.steps?.decisions.length - 1) this.show(0);
    $("#play").firstChild.data = "Pause ";
    this.timer = setInterval(() => { this.at < this.steps.decisions.length - 1 ? this.show(this.at + 1) : this.pause(); }, 400);
  },
  pause() { clearInterval(this.timer); this.timer = undefined; $("#play").firstChild.data = "Play "; },
};
function bar(share) { // from -1 to 1
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), rect = document.createElementNS(svg.namespaceURI, "rect"), width = 30 * Math.abs(share);
  Object.entries({ width: 60, height: 10, class: "delta", "aria-hidden": "true" }).forEach(([name, value]) => svg.setAttribute(name, value));
  Object.entries({ x: share < 0 ? 30 - width : 30, y: 1, height: 8, width, class: share < 0 ? "sell" : "" }).forEach(([name, value]) => rect.setAttribute(name, value));
  svg.append(rect);
  return svg;
}

// ---- episodes of the tests
const EPISODE = { policy: "Account", fold: "Fold", first_session: "First", last_session: "Last", n_steps: "Steps", reward: "Reward", equity: "Equity at its end", max_drawdown: "Largest drawdown", terminated: "Ended early" };
async function listEpisodes() {
  const root = $("#episodes"), show = { reward: (value) => format(value, 3, true), equity: (value) => `${format(value, 3)}×`, max_drawdown: (value) => percent(value), terminated: (value) => (value ? "yes" : "no"), policy: readable };
  try {
    const { rows } = await read(`/rl/runs/${$("#player").dataset.run}/episodes?phase=${root.dataset.phase}&limit=500`);
    const names = Object.keys(EPISODE).filter((name) => rows.length && name in rows[0]);
    $("#episodes-head").replaceChildren(element("tr", {}, ...names.map((name, i) => element("th", { scope: "col", className: i ? "n" : "", textContent: EPISODE[name] }))));
    $("#episodes-rows").replaceChildren(...rows.map((row) => element("tr", {}, ...names.map((name, i) => element(i ? "td" : "th", { className: i ? "n" : "", textContent: (show[name] ?? String)(row[name]) })))));
  } catch (error) { $("#episodes-rows").replaceChildren(); fail(root, error.message); }
}

// ---- numbers of an address: facts as a list, rows as tables
const LINKS = { // what a cell leads to, by column
  run_id: (id) => `/lab/runs/${id}`, account: (name) => `/accounts/${name}`,
  session_id: (id) => `/lab/searches/${id}`, plan: (id) => `/numbers?of=/api/plans/${id}`, plan_id: (id) => `/numbers?of=/api/plans/${id}`,
};
const isRows = (value) => Array.isArray(value) && value.length > 0 && value.every((row) => row && typeof row === "object" && !Array.isArray(row));
const isFacts = (value) => value !== null && typeof value === "object" && !Array.isArray(value);
function text(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : value.toLocaleString("en-US", { maximumFractionDigits: Math.abs(value) < 1000 ? 6 : 2 });
  if (Array.isArray(value)) return value.map(text).join(", ");
  return isFacts(value) ? Object.entries(value).map(([name, part]) => `${name} ${text(part)}`).join(", ") : String(value);
}
const cell = (name, value) => (LINKS[name] && typeof value === "string" && value ? [element("a", { href: LINKS[name](encodeURIComponent(value)), textContent: value })] : [text(value)]);
const words = (name) => name.replaceAll("_", " ");
function table(name, rows) {
  const columns = [...new Set(rows.flatMap(Object.keys))], side = (column) => (rows.some((row) => typeof row[column] === "number") ? "n" : "");
  const head = element("tr", {}, ...columns.map((column) => element("th", { scope: "col", className: side(column), textContent: words(column) })));
  const body = rows.map((row) => element("tr", {}, ...columns.map((column) => element("td", { className: side(column) }, ...cell(column, row[column])))));
  const region = element("div", { className: "scroll", tabIndex: 0 }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...body)));
  region.setAttribute("role", "region");
  region.setAttribute("aria-label", words(name));
  letSort(region);
  return region;
}
function describe(name, value) {
  if (isRows(value)) return [table(name, value)];
  if (!isFacts(value)) return [element("p", { textContent: Array.isArray(value) && !value.length ? "There are none." : text(value) })];
  const isPart = (part) => isRows(part) || (isFacts(part) && Object.keys(part).length > 0), parts = Object.entries(value).filter(([, part]) => isPart(part));
  const facts = Object.entries(value).filter(([, part]) => !isPart(part)).flatMap(([fact, part]) => [element("dt", { textContent: words(fact) }), element("dd", {}, ...cell(fact, part))]);
  return [...(facts.length ? [element("dl", { className: "numbers" }, ...facts)] : []), ...parts.flatMap(([part, inner]) => [element("h3", { textContent: words(part) }), ...describe(part, inner)])];
}
async function showNumbers() {
  const root = $("#numbers"), { of } = root.dataset;
  try {
    const value = await read(of), isPage = isFacts(value) && "rows" in value && "next" in value, more = new URL(of, location);
    root.replaceChildren(...(value === null ? [element("p", { textContent: "There are none." })] : describe("rows", isPage ? value.rows : value)));
    if (isPage && value.next) {
      more.searchParams.set("after", value.next);
      root.append(element("a", { className: "small", textContent: "The next rows", href: `/numbers?of=${encodeURIComponent(more.pathname + more.search)}` }));
    }
  } catch (error) { root.replaceChildren(); fail(root.parentElement, error.message); }
}

// ---- tables that sort: a click on a header sorts by its column, numbers from the highest; missing values come last
function valueOf(row, column) {
  const cell = row.cells[column], shown = [...cell.childNodes].map((part) => part.textContent).join(" ").trim(); // a name apart from the id after it
  return cell.classList.contains("n") ? parseFloat(shown.replaceAll(",", "").replaceAll(MINUS, "-")) : shown;
}
function sortBy(head) {
  const isDown = head.ariaSort ? head.ariaSort === "ascending" : head.classList.contains("n"), body = head.closest("table").tBodies[0];
  const rows = [...body.rows].map((row) => [valueOf(row, head.cellIndex), row]), isMissing = ([value]) => Number.isNaN(value) || value === "" || value === "–";
  const compare = ([a], [b]) => (isDown ? -1 : 1) * (typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true }));
  body.append(...[...rows.filter((row) => !isMissing(row)).sort(compare), ...rows.filter(isMissing)].map(([, row]) => row));
  [...head.parentElement.cells].forEach((other) => { other.ariaSort = other === head ? (isDown ? "descending" : "ascending") : null; });
}
function letSort(sorted) {
  $$("thead th", sorted).filter((head) => !$(".vh", head)).forEach((head) => {
    const button = element("button", { type: "button", className: "sort" }, ...head.childNodes);
    button.addEventListener("click", () => sortBy(head));
    head.append(button);
  });
}

// ---- library and components: filters
function chooseRuns() {
  const wanted = $("#wanted").value.trim().toLowerCase(), chosen = $$("[data-of]").map(({ dataset, value }) => [dataset.of, value]);
  const rows = $$("#runs tbody tr"), isShown = (row) => row.textContent.toLowerCase().includes(wanted) && chosen.every(([name, value]) => !value || row.dataset[name] === value || (name === "tags" && row.dataset.tags.split(", ").includes(value)));
  rows.forEach((row) => { row.hidden = !isShown(row); });
  $$("#versions tbody tr").forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
  $("#none").hidden = rows.some(({ hidden }) => !hidden);
  $("#shown").textContent = `${rows.filter(({ hidden }) => !hidden).length} of ${rows.length}`;
  const n = $$("#runs input:checked").length;
  $("#compare").setAttribute("aria-disabled", n < 2);
  $("#compare").textContent = n === 1 ? "1 chosen: tick another" : n < 2 ? "Compare 2 to 8" : `Compare ${n} runs`;
}
function chooseMembers() {
  const wanted = $("#wanted").value.trim().toLowerCase();
  $$(".member").forEach((member) => { member.hidden = !member.textContent.toLowerCase().includes(wanted); });
  $$("section.panel").forEach((family) => { family.hidden = !$(".member:not([hidden])", family); });
  $("#none").hidden = $$(".member").some(({ hidden }) => !hidden);
}

// ---- dialogs, forms and keys
function showDialog(id) { const dialog = $(`#${id}`), form = $("form", dialog); if (form) fail(form, ""); if (!dialog.open) dialog.showModal(); }
document.addEventListener("click", (event) => {
  const target = event.target.closest("button");
  if (!target || isDisabled(target)) return;
  if (target.dataset.open) showDialog(target.dataset.open);
  if (target.hasAttribute("data-close")) target.closest("dialog").close();
});
document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.dataset.post) return;
  event.preventDefault();
  const body = Object.fromEntries(new FormData(form));
  if ("names" in body) body.names = [body.names];
  if ("engaged" in body) body.engaged = body.engaged === "true";
  if (body.engaged && !body.reason) body.reason = "halted on the page";
  try { await post(form.dataset.post, body); location.reload(); } catch (error) { fail(form, error.message); }
});
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog[open]") || recall("keys") === "off") return;
  if (event.target.matches("input:not([type=range]), select, textarea, button, summary, a") && event.key !== "Escape") { if (event.key === " " || event.target.matches("input, select, textarea")) return; }
  const does = { ",": () => player.show(player.at - 1), ".": () => player.show(player.at + 1), " ": () => player.play() }[event.key];
  if (does && $("#player")) { event.preventDefault(); does(); }
  if (event.key === "/" && $("#wanted")) { event.preventDefault(); $("#wanted").focus(); }
  if (event.key === "h" && !isLocked) showDialog("halt");
  if (event.key === "?") showDialog("keys");
});

// ---- start
setTheme();
$$(".plot").forEach((plot) => near.observe(plot));
$$("table[data-sort]").forEach(letSort);
for (const query of ["(prefers-color-scheme: dark)", "(max-width: 48rem)"]) matchMedia(query).addEventListener("change", () => drawn.forEach(draw));
if ($("#filters")) {
  for (const kind of ["input", "change"]) document.addEventListener(kind, chooseRuns);
  $("#filters").addEventListener("submit", (event) => { if ($$("#runs input:checked").length < 2) { event.preventDefault(); say("Choose two runs or more."); } });
  chooseRuns();
}
if ($("#finder")) {
  $("#finder").addEventListener("submit", (event) => event.preventDefault());
  $("#wanted").addEventListener("input", chooseMembers);
}
if ($("#player")) {
  $("#fold").addEventListener("change", () => player.load());
  $("#cursor").addEventListener("input", (event) => { player.pause(); player.show(Number(event.target.value)); });
  $("#back").addEventListener("click", () => player.show(player.at - 1));
  $("#forth").addEventListener("click", () => player.show(player.at + 1));
  $("#play").addEventListener("click", () => player.play());
  player.load();
}
if ($("#episodes")) listEpisodes();
if ($("#numbers")) showNumbers();
if ($("#name")) $("#name").addEventListener("change", () => draw($("#plot-name")));
if ($("[data-task]")) { // of a running run: its stage, and the page anew once it has ended
  const stage = $("[data-task]"), stream = new EventSource(`/chat/stream/${stage.dataset.task}`);
  stream.addEventListener("progress", ({ data }) => {
    const step = JSON.parse(data), done = step.stage === "done" || step.stage === "error";
    stage.textContent = `${step.stage}: ${step.message}`;
    if (done) { stream.close(); location.reload(); }
  });
}
