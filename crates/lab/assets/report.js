"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const names = Object.keys(data.policies);
  const policies = names.map((name) => data.policies[name]);
  // Policies may coincide: dashes let the line below show through.
  const dashes = [[], [], [], [7, 7], [3, 3], [10, 3, 2, 3]];
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (i) => css("--c" + (i % 6));
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
  const times = (v) => (v == null ? "-" : trim(v, 3) + " x");

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
    label: names[i], stroke: colour(i), width: 2, dash: dashes[i % 6], spanGaps: true,
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

  function cdf() {
    const host = byId("cdf");
    const tables = policies.map((p) => {
      const x = [], y = [];
      p.latency_cdf.latency_us.forEach((us, i) => {
        if (us <= 0) return;
        const share = p.latency_cdf.fraction[i] * 100;
        // A step is drawn upright: where many requests take the same time.
        if (us !== x[x.length - 1]) { x.push(us * 0.9999, us); y.push(share, share); }
        y[y.length - 1] = share;
      });
      return [x, y];
    });
    const all = tables.flatMap((t) => t[0]);
    if (all.length === 0) return;
    const low = Math.min(...all), high = Math.max(...all);
    chart(host, {
      height: 400,
      scales: { x: logScale(low, high), y: { range: [0, 100] } },
      axes: [
        logAxis("latency (logarithmic)", duration, 44),
        axis("requests answered (%)", percent),
      ],
      series: [{ label: "latency", value: (u, v) => duration(v) },
        ...names.map((_, i) => line(i, percent))],
    }, uPlot.join(tables));
  }

  function speedup() {
    const host = byId("speedup");
    const shown = policies.map((p, i) => [p.speedup_over_nologging, i])
      .filter(([s, i]) => s && names[i] !== "nologging");
    if (shown.length === 0) {
      host.textContent = "nologging was not replayed: there is nothing to compare with.";
      return;
    }
    const x = shown[0][0].percentiles;
    const values = shown.flatMap(([s]) => s.at_percentiles).filter((v) => v > 0);
    const low = Math.min(1, ...values), high = Math.max(1, ...values);
    const logarithmic = high / low > 12;
    const one = {
      label: "no logging = 1", stroke: css("--ink"), width: 1, dash: [2, 3],
      points: { show: false }, value: () => "",
    };
    chart(host, {
      scales: {
        x: { time: false, range: [0, 100] },
        y: logarithmic ? logScale(low, high) : { range: [Math.min(0.5, low * 0.9), high * 1.08] },
      },
      axes: [axis("percentile of latency", null, 44),
        (logarithmic ? logAxis : axis)("speed-up over nologging", times)],
      series: [{ label: "percentile", value: (u, v) => (v == null ? "-" : String(v)) }, one,
        ...shown.map(([, i]) => line(i, times))],
    }, [x, x.map(() => 1), ...shown.map(([s]) => s.at_percentiles)]);
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
        ...names.map((_, i) => Object.assign(line(i, duration), { width: 1.5 }))],
    }, uPlot.join(tables));
  }

  const kinds = [
    ["r", "read, home", "--read"], ["w", "write, home", "--write"],
    ["R", "read, log", "--read-log"], ["W", "write, log", "--write-log"],
  ];

  function titled(host, text) {
    const title = document.createElement("h3");
    title.textContent = text;
    const plot = document.createElement("div");
    plot.className = "plot";
    host.append(title, plot);
    return plot;
  }

  function head() {
    const host = byId("head");
    const end = Math.max(...policies.map((p) => p.head.seconds[p.head.seconds.length - 1] || 0));
    policies.forEach((p, i) => {
      const low = p.head.gigabytes.reduce((a, b) => Math.min(a, b), Infinity);
      const high = p.head.gigabytes.reduce((a, b) => Math.max(a, b), 0);
      const margin = Math.max((high - low) * 0.03, 0.001);
      const present = kinds.filter(([letter]) => p.head.kind.includes(letter));
      const columns = present.map(([letter]) =>
        p.head.gigabytes.map((gb, j) => (p.head.kind[j] === letter ? gb : null)));
      chart(titled(host, names[i]), {
        height: 280,
        scales: {
          x: { time: false, range: [0, end] },
          y: { range: [Math.max(0, low - margin), high + margin] },
        },
        axes: [axis("time (s)", null, 44), axis("place on the disk (GB)", (v) => trim(v, 6), 70)],
        series: [{ label: "time", value: (u, v) => (v == null ? "-" : trim(v, 5) + " s") },
          ...present.map(([, label, name]) => ({
            label, stroke: css(name), paths: () => null,
            points: { show: true, size: 3, width: 0, fill: css(name) },
            value: (u, v) => (v == null ? "-" : trim(v, 6) + " GB"),
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
    cdf();
    speedup();
    if (byId("reads")) overTime("reads", "Reads", "read_mean_us");
    if (byId("writes")) overTime("writes", "Writes", "write_mean_us");
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
