// Export of a chart: its data as CSV, its picture as PNG. Both are made in the browser.
(() => {
  const save = (blob, name) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  // Values that a spreadsheet would take for a formula are texts.
  const cell = (value) => {
    let text = value === null || value === undefined ? "" : String(value);
    if (typeof value === "string" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
    return /[",\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const axis = (found) => ((Array.isArray(found) ? found[0] : found) || {}).data || [];
  const plain = (each) => (each !== null && typeof each === "object" && !Array.isArray(each) ? each.value : each);
  const rows = (option) => {
    const series = option.series || [];
    const names = axis(option.xAxis).length ? axis(option.xAxis) : axis(option.yAxis);
    if (series[0] && series[0].type === "heatmap") {
      const days = axis(option.yAxis);
      return [["row", "column", series[0].name || "value"], ...series[0].data.map(([x, y, v]) => [days[y], names[x], v])];
    }
    if (series[0] && series[0].type === "pie") return [["name", "value"], ...series[0].data.map((each) => [each.name, each.value])];
    return [["", ...series.map((each) => each.name || "value")], ...names.map((name, at) => [name, ...series.map((each) => plain(each.data[at]))])];
  };
  const instance = (button) => {
    const box = button.closest(".p-charted");
    return { box, chart: getElement(Number(box.querySelector(".p-chart").id.slice(1))).chart, name: box.dataset.name || "chart" };
  };
  window.exportChartCsv = (button) => {
    const { chart, name } = instance(button);
    const text = rows(chart.getOption()).map((row) => row.map(cell).join(",")).join("\r\n");
    save(new Blob(["\ufeff", text, "\r\n"], { type: "text/csv;charset=utf-8" }), `${name}.csv`);
  };
  window.exportChartPng = (button) => {
    const { box, name } = instance(button);
    const drawn = box.querySelector("svg");
    const { width, height } = drawn.getBoundingClientRect();
    const copy = drawn.cloneNode(true);
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const picture = new Image();
    picture.onload = () => {
      const canvas = document.createElement("canvas");
      canvas.width = width * 2;
      canvas.height = height * 2;
      const pen = canvas.getContext("2d");
      pen.scale(2, 2);
      pen.fillStyle = getComputedStyle(document.body).getPropertyValue("--surface") || "#fff";
      pen.fillRect(0, 0, width, height);
      pen.drawImage(picture, 0, 0, width, height);
      canvas.toBlob((blob) => save(blob, `${name}.png`), "image/png");
    };
    picture.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
  };
})();
