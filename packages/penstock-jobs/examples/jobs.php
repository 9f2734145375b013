<?php
// A client of the HTTP API of jobs, for PHP 8 with its curl extension.
//
//     PENSTOCK_JOBS_TOKEN=… php jobs.php http://127.0.0.1:8081 predict samples.csv models.zip

declare(strict_types=1);

final class Jobs
{
    public function __construct(private string $url, private ?string $token = null)
    {
        $this->url = rtrim($url, '/');
    }

    /** Submits a form; files are CURLFile. Returns the job. */
    public function submit(array $form): array
    {
        return json_decode($this->send('POST', '/jobs', $form), true);
    }

    public function get(string $id): array
    {
        return json_decode($this->send('GET', '/jobs/' . rawurlencode($id)), true);
    }

    /** Waits for the end of a job; $changed is called with the job when its revision changes. */
    public function wait(string $id, callable $changed): array
    {
        for ($revision = 0; ; usleep(500_000)) {
            $job = $this->get($id);
            if ($job['revision'] > $revision) {
                $revision = $job['revision'];
                $changed($job);
            }
            if (in_array($job['state'], ['done', 'failed', 'cancelled', 'refused'], true)) {
                return $job;
            }
        }
    }

    public function result(string $id, string $format = 'json'): string
    {
        return $this->send('GET', '/jobs/' . rawurlencode($id) . '/result?as=' . $format);
    }

    public function cancel(string $id): array
    {
        return json_decode($this->send('POST', '/jobs/' . rawurlencode($id) . '/cancel', []), true);
    }

    private function send(string $method, string $path, ?array $form = null): string
    {
        $request = curl_init($this->url . $path);
        $headers = $this->token === null ? [] : ["Authorization: Bearer {$this->token}"];
        curl_setopt_array($request, [
            CURLOPT_CUSTOMREQUEST => $method,
            CURLOPT_HTTPHEADER => $headers,
            CURLOPT_RETURNTRANSFER => true,
        ] + ($form === null ? [] : [CURLOPT_POSTFIELDS => $form]));
        $body = curl_exec($request);
        if ($body === false) {
            throw new RuntimeException(curl_error($request));
        }
        if (curl_getinfo($request, CURLINFO_RESPONSE_CODE) >= 400) {
            $problem = json_decode($body, true);
            throw new RuntimeException("{$problem['status']} {$problem['title']}: {$problem['detail']}");
        }
        return $body;
    }
}

function main(string $url, string $kind, string ...$files): void
{
    $jobs = new Jobs($url, getenv('PENSTOCK_JOBS_TOKEN') ?: null);
    $job = $jobs->submit($kind === 'predict' ? [
        'type' => 'predict_models',
        'dataset' => new CURLFile($files[0]),
        'models' => new CURLFile($files[1]),
    ] : ['type' => $kind, 'duration' => $files[0] ?? '1']);
    $job = $jobs->wait($job['id'], function (array $job): void {
        fprintf(STDERR, "%s %s %d %%\n", $job['id'], $job['state'], 100 * $job['progress']);
    });
    if ($job['state'] !== 'done') {
        throw new RuntimeException("{$job['id']}: {$job['error']}");
    }
    echo $jobs->result($job['id']), "\n";
}

if (PHP_SAPI === 'cli' && realpath($argv[0]) === __FILE__) {
    try {
        main(...array_slice($argv, 1));
    } catch (RuntimeException $error) {
        fwrite(STDERR, $error->getMessage() . "\n");
        exit(1);
    }
}
