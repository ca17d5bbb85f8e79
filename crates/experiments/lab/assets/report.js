"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = Object.keys(data.policies);
  const policies = names.map((name) => data.policies[name]);
  // More than so many curves are not legible: the others wait in the legend for a click.
  const SHOWN = 8;
  const important = new Set([data.baseline, data.verdict.policy]);
  const shown = new Set(names.map((_, i) => i).sort((a, b) =>
    important.has(names[b]) - important.has(names[a]) || a - b).slice(0, SHOWN));
  // Policies may coincide: dashes let the line below show through.
  const dashes = [[], [], [], [7, 7], [3, 3], [10, 3, 2, 3]];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => css("--c" + (i % SHOWN));
  const width = (host) => Math.max(300, host.clientWidth);
  const byId = (id) => document.getElementById(id);

  const trim = (v, digits) => String(Number(v.toPrecision(digits)));
  const duration = (us) => {
    if (us == null) return "-";
    if (us < 1e3) return trim(us, 3) + " us";
    if (us < 1e6) return trim(us / 1e3, 3) + " ms";
    return trim(us / 1e6, 3) + " s";
  };
  const percent = (v) => (v == null ? "-" : trim(v, 4) + " %");

  const axis = (label, values, size) => ({
    label,
    values: values && ((u, splits) => splits.map((v) => (v == null ? "" : values(v)))),
    size: size || 62,
    labelSize: 26,
    font: "12px system-ui, sans-serif",
    labelFont: "13px system-ui, sans-serif",
    stroke: css("--muted"),
    grid: { stroke: css("--grid"), width: 1 },
    ticks: { stroke: css("--rule"), width: 1 },
  });
  // On a logarithmic axis only the powers of ten are labelled.
  const logAxis = (label, values, size) => Object.assign(axis(label, values, size), {
    filter: (u, splits) => splits.map((v) => (isPowerOfTen(v) ? v : null)),
  });
  const isPowerOfTen = (v) => Math.abs(Math.log10(v) - Math.round(Math.log10(v))) < 1e-6;
  const logScale = (low, high) => ({
    time: false, distr: 3, range: () => [floor10(low), ceil10(high)],
  });
  const floor10 = (v) => 10 ** Math.floor(Math.log10(v) + 1e-9);
  const ceil10 = (v) => 10 ** Math.ceil(Math.log10(v) - 1e-9);

  const line = (i, value) => ({
    label: names[i], stroke: colour(i), width: 2, show: shown.has(i), spanGaps: true,
    dash: dashes[i % dashes.length],
    points: { show: false }, value: (u, v) => value(v),
  });
  const chart = (host, options, columns) => {
    const colours = options.series.map((series) => series.stroke);
    const marker = (u, i) => colours[i] || "transparent";
    return new uPlot(Object.assign({
      width: width(host), height: 360, padding: [12, 34, 0, 0],
      legend: { markers: { width: 0, fill: marker } },
    }, options), columns, host);
  };

  // The distribution of what `key` names; false if no policy has any.
  function cdf(id, title, key) {
    const host = byId(id);
    const tables = policies.map((p) => {
      const x = [], y = [];
      p[key].latency_us.forEach((us, i) => {
        if (us <= 0) return;
        const share = p[key].fraction[i] * 100;
        // A step is drawn upright: where many requests take the same time.
        if (us !== x[x.length - 1]) { x.push(us * 0.9999, us); y.push(share, share); }
        y[y.length - 1] = share;
      });
      return [x, y];
    });
    const all = tables.flatMap((t) => t[0]);
    if (all.length === 0) { host.hidden = true; return; }
    const low = Math.min(...all), high = Math.max(...all);
    chart(host, {
      title, height: 360,
      scales: { x: logScale(low, high), y: { range: [0, 100] } },
      axes: [
        logAxis("latency (logarithmic)", duration, 44),
        axis("answered (%)", percent),
      ],
      series: [{ label: "latency", value: (u, v) => duration(v) },
        ...names.map((_, i) => line(i, percent))],
    }, uPlot.join(tables));
  }

  function overTime(id, title, key) {
    const host = byId(id);
    const tables = policies.map((p) => [p.latency_over_time.seconds, p.latency_over_time[key]]);
    const values = tables.flatMap((t) => t[1]).filter((v) => v > 0);
    if (values.length === 0) { host.remove(); return; }
    const low = values.reduce((a, b) => Math.min(a, b));
    const high = values.reduce((a, b) => Math.max(a, b));
    chart(host, {
      title, height: 300,
      scales: { x: { time: false }, y: logScale(low, high) },
      axes: [
        axis("time of arrival (s)", null, 44),
        logAxis("mean latency (logarithmic)", duration),
      ],
      series: [{ label: "time", value: (u, v) => (v == null ? "-" : trim(v, 5) + " s") },
        ...names.map((_, i) => Object.assign(line(i, duration), {
          width: 1.5, spanGaps: false, points: { show: true, size: 3, filter: lonely },
        }))],
    }, uPlot.join(tables));
  }

  // Where nothing arrived there is no line: a value between two gaps is a point.
  const lonely = (u, series) => u.data[series].flatMap((v, i, all) =>
    (v != null && all[i - 1] == null && all[i + 1] == null ? [i] : []));

  // What matters most is drawn last, on top of a dense reader.
  const kinds = [
    ["r", "read, home", "--read", 3], ["R", "read, log", "--read-log", 4],
    ["w", "write, home", "--write", 4], ["W", "write, log", "--write-log", 4],
  ];

  function titled(host, text) {
    const title = document.createElement("h3");
    title.textContent = text;
    const plot = document.createElement("div");
    plot.className = "plot";
    host.append(title, plot);
    return plot;
  }

  // The places that any policy used, on one scale for all. Wide parts of the disk where nothing
  // happens take little room, so that a far-away log doesn't flatten the rest.
  function placeScale() {
    const all = policies.flatMap((p) => p.head.gigabytes).sort((a, b) => a - b);
    if (all.length === 0) return null;
    let total = all[all.length - 1] - all[0];
    const gaps = all.slice(1).map((gb, i) => [gb - all[i], i + 1]).sort((a, b) => b[0] - a[0]);
    // A gap is left out if it is a tenth of what the larger ones leave.
    const cuts = gaps.slice(0, 5).filter(([gap]) => {
      if (gap < total * 0.1) return false;
      total -= gap;
      return true;
    }).map(([, at]) => at).sort((a, b) => a - b);
    const parts = [0, ...cuts].map((at, i) => [all[at], all[(cuts[i] || all.length) - 1]]);
    total = total || 1;
    const GAP = 0.08, LEAST = 0.15, wide = total;
    let at = 0;
    const pieces = parts.map(([low, high]) => {
      const length = LEAST + (high - low) / total;
      const piece = { low, high, from: at, to: at + length };
      at += length + GAP;
      return piece;
    });
    const place = (gb) => {
      const piece = pieces.find((p) => gb <= p.high) || pieces[pieces.length - 1];
      const share = piece.high > piece.low ? (gb - piece.low) / (piece.high - piece.low) : 0.5;
      return piece.from + share * (piece.to - piece.from);
    };
    const marks = pieces.flatMap((p) => (p.high - p.low > wide / 50
      ? [[p.from, p.low], [p.to, p.high]] : [[(p.from + p.to) / 2, (p.low + p.high) / 2]]));
    return { place, marks, end: at - GAP };
  }

  function head() {
    const host = byId("head");
    const end = Math.max(...policies.map((p) => p.head.seconds[p.head.seconds.length - 1] || 0));
    const scale = placeScale();
    if (!scale) return;
    // Labels that would touch are left out.
    const labelled = [];
    scale.marks.forEach((mark) => {
      const last = labelled[labelled.length - 1];
      if (!last || mark[0] - last[0] > 0.07 * scale.end) labelled.push(mark);
    });
    const label = (v) => {
      const mark = labelled.find(([at]) => Math.abs(at - v) < 1e-9);
      return mark ? trim(mark[1], 4) : "";
    };
    policies.forEach((p, i) => {
      if (!shown.has(i)) return;
      const present = kinds.filter(([letter]) => p.head.kind.includes(letter));
      const columns = present.map(([letter]) =>
        p.head.gigabytes.map((gb, j) => (p.head.kind[j] === letter ? scale.place(gb) : null)));
      const gigabytes = (u, v, series, j) =>
        (v == null ? "-" : trim(p.head.gigabytes[j], 6) + " GB");
      chart(titled(host, names[i]), {
        height: 260,
        scales: {
          x: { time: false, range: [0, end] },
          y: { range: [-0.04 * scale.end, 1.04 * scale.end] },
        },
        axes: [axis("time (s)", null, 44),
          Object.assign(axis("place (GB)", label, 70), {
            splits: () => scale.marks.map(([at]) => at),
          })],
        series: [{ label: "time", value: (u, v) => (v == null ? "-" : trim(v, 5) + " s") },
          ...present.map(([, kind, name, size]) => ({
            label: kind, stroke: css(name), paths: () => null,
            points: { show: true, size, width: 0, fill: css(name) },
            value: gigabytes,
          }))],
      }, [p.head.seconds, ...columns]);
    });
  }

  function occupancy() {
    const host = byId("occupancy");
    let any = false;
    policies.forEach((p, i) => {
      const o = p.log_occupancy;
      if (o.gigabytes.length === 0) return;
      any = true;
      const high = Math.max(1, ...o.used_percent);
      const area = (label, name, alpha) => ({
        label, stroke: css(name), fill: css(name) + alpha, width: 1.5,
        paths: uPlot.paths.bars({ size: [0.9, 100] }), points: { show: false },
        value: (u, v) => percent(v),
      });
      chart(titled(host, names[i]), {
        height: 230,
        scales: { x: { time: false }, y: { range: [0, Math.min(105, high * 1.1)] } },
        axes: [axis("place on the disk (GB)", null, 44), axis("log space (%)", percent)],
        series: [{ label: "place", value: (u, v) => (v == null ? "-" : trim(v, 5) + " GB") },
          area("used", "--c1", "55"), area("newest", "--c3", "aa")],
      }, [o.gigabytes, o.used_percent, o.live_percent]);
    });
    if (!any) byId("occupancy-section").remove();
  }

  function checkpoint() {
    const shown = policies.map((p, i) => [p.checkpoint, names[i]])
      .filter(([c]) => c && c.logged_writes > 0);
    if (shown.length === 0) { byId("checkpoint-section").remove(); return; }
    const n = shown.length, x = [], writes = [], blocks = [];
    shown.forEach(([c], i) => {
      x.push(i * 3, i * 3 + 1);
      writes.push(c.writes_saved_percent, null);
      blocks.push(null, c.sectors_saved_percent);
    });
    const bars = (label, name) => ({
      label, stroke: css(name), fill: css(name), width: 0,
      paths: uPlot.paths.bars({ size: [0.8, 70] }), points: { show: false },
      value: (u, v) => percent(v),
    });
    const names3 = (u, splits) => splits.map((v) => {
      const i = Math.round((v - 0.5) / 3);
      return shown[i] ? shown[i][1] : "";
    });
    chart(byId("checkpoint"), {
      height: 280, cursor: { show: false },
      legend: {
        live: false,
        markers: { width: 0, fill: (u, i) => css(i === 1 ? "--c3" : "--c1") },
      },
      scales: { x: { time: false, range: [-1, n * 3 - 1] }, y: { range: [0, 100] } },
      axes: [
        Object.assign(axis("", null, 40), {
          label: undefined, values: names3, grid: { show: false }, ticks: { show: false },
          splits: () => shown.map((_, i) => i * 3 + 0.5),
        }),
        axis("saved (%)", percent),
      ],
      series: [{ label: "policy" }, bars("write requests saved", "--c3"),
        bars("block writes saved", "--c1")],
    }, [x, writes, blocks]);
    const rows = shown.map(([c, name]) => [
      name, c.logged_writes, c.home_writes,
      c.logged_sectors, c.home_sectors, c.log_reads,
      duration(c.simulated_seconds * 1e6),
    ]);
    const titles = ["policy", "logged writes", "home writes", "logged sectors", "home sectors",
      "log reads", "duration"];
    byId("checkpoint-table").replaceChildren(row("th", titles), ...rows.map((r) => row("td", r)));
  }

  function row(tag, cells) {
    const tr = document.createElement("tr");
    tr.append(...cells.map((text) => {
      const cell = document.createElement(tag);
      cell.textContent = text;
      return cell;
    }));
    return tr;
  }

  function draw() {
    document.querySelectorAll(".plot, #head, #occupancy").forEach((host) => host.replaceChildren());
    cdf("durable-cdf", "Until data is durable", "durable_cdf");
    cdf("reads-cdf", "Reads", "reads_cdf");
    if (byId("writes")) overTime("writes", "Until data is durable", "durable_mean_us");
    if (byId("reads")) overTime("reads", "Reads", "read_mean_us");
    head();
    if (byId("occupancy")) occupancy();
    if (byId("checkpoint")) checkpoint();
  }

  let pending;
  window.addEventListener("resize", () => {
    clearTimeout(pending);
    pending = setTimeout(draw, 150);
  });
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
  draw();
})();
