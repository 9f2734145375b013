// A client of the HTTP API of jobs, for Node 18 or later and for browsers.
//
//     PENSTOCK_JOBS_TOKEN=… node jobs.mjs http://127.0.0.1:8081 predict samples.csv models.zip

export class Jobs {
  constructor(url, token) {
    this.url = url.replace(/\/$/, "");
    this.headers = token ? { Authorization: `Bearer ${token}` } : {};
  }

  // Submits a request as JSON, or a FormData with files. Returns the job.
  async submit(request) {
    const form = request instanceof FormData;
    const headers = form ? this.headers : { ...this.headers, "Content-Type": "application/json" };
    const body = form ? request : JSON.stringify(request);
    return (await this.#fetch("/jobs", { method: "POST", headers, body })).json();
  }

  // Yields the job with each change, up to its end.
  async *watch(id) {
    let last = "";
    for (;;) {
      const headers = last ? { ...this.headers, "Last-Event-ID": last } : this.headers;
      const response = await this.#fetch(`/jobs/${encodeURIComponent(id)}/progress`, { headers });
      let text = "";
      for await (const chunk of response.body.pipeThrough(new TextDecoderStream())) {
        text += chunk;
        const events = text.split("\n\n");
        text = events.pop();
        for (const event of events) {
          const fields = Object.fromEntries(event.split("\n").map((line) => line.split(/: (.*)/s)));
          if (fields.event !== "job") continue;
          last = fields.id;
          const job = JSON.parse(fields.data);
          yield job;
          if (["done", "failed", "cancelled", "refused"].includes(job.state)) return;
        }
      }
    }
  }

  async result(id, format = "json") {
    const response = await this.#fetch(`/jobs/${encodeURIComponent(id)}/result?as=${format}`);
    return format === "json" ? response.json() : new Uint8Array(await response.arrayBuffer());
  }

  async cancel(id) {
    return (await this.#fetch(`/jobs/${encodeURIComponent(id)}/cancel`, { method: "POST" })).json();
  }

  async #fetch(path, options = {}) {
    const response = await fetch(this.url + path, { headers: this.headers, ...options });
    if (!response.ok) {
      const problem = await response.json();
      throw new Error(`${problem.status} ${problem.title}: ${problem.detail}`);
    }
    return response;
  }
}

async function main([url, kind, ...files]) {
  const { readFile } = await import("node:fs/promises");
  const jobs = new Jobs(url, process.env.PENSTOCK_JOBS_TOKEN);
  const form = new FormData();
  form.set("type", kind === "predict" ? "predict_models" : kind);
  if (kind === "predict") {
    form.set("dataset", new Blob([await readFile(files[0])]), "samples.csv");
    form.set("models", new Blob([await readFile(files[1])]), "models.zip");
  } else {
    form.set("duration", files[0] ?? "1");
  }
  const { id } = await jobs.submit(form);
  let job;
  for await (job of jobs.watch(id)) console.error(`${id} ${job.state} ${Math.round(100 * job.progress)} %`);
  if (job.state !== "done") throw new Error(`${id}: ${job.error}`);
  console.log(JSON.stringify(await jobs.result(id)));
}

if (typeof process !== "undefined" && process.argv[1]?.endsWith("jobs.mjs")) {
  main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exitCode = 1;
  });
}
