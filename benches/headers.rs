//! The header policy in both directions, on heads as Codex and its upstream send them.

use std::hint::black_box;

use codex_edge::protocol::headers::{RequestPolicy, client_key, denied_in_response};
use criterion::{Criterion, criterion_group, criterion_main};
use http::{HeaderMap, HeaderName, HeaderValue};

const REQUEST: &[(&str, &str)] = &[
    ("authorization", "Bearer cek_0123456789abcdefghijklmnopqrstuvwxyz"),
    ("host", "127.0.0.1:8787"),
    ("content-type", "application/json"),
    ("content-length", "48211"),
    ("content-encoding", "zstd"),
    ("accept", "text/event-stream"),
    ("user-agent", "codex_cli_rs/0.171.0 (Debian 12.0.0; x86_64) xterm-256color"),
    ("originator", "codex_cli_rs"),
    ("version", "0.171.0"),
    ("session-id", "01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"),
    ("thread-id", "01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"),
    ("x-client-request-id", "01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"),
    ("x-codex-window-id", "01a22eb8-5f41-7992-ae3f-89eb5d5a40e7:0"),
    ("x-codex-turn-state", "sim-turn-state.alice.1200"),
    ("x-codex-turn-metadata", "{\"turn_id\":\"01a22eb8-5f41-7992\",\"sandbox\":\"none\"}"),
    ("x-codex-beta-features", "remote_compaction_v2"),
];

const RESPONSE: &[(&str, &str)] = &[
    ("date", "Tue, 01 Dec 2026 10:00:00 GMT"),
    ("content-type", "text/event-stream; charset=utf-8"),
    ("transfer-encoding", "chunked"),
    ("connection", "keep-alive"),
    ("server", "cloudflare"),
    ("cf-ray", "00000000000004b0-SIM"),
    ("cf-cache-status", "DYNAMIC"),
    ("cache-control", "no-cache"),
    ("set-cookie", "__cf_bm=0123456789; path=/; domain=.example.com; HttpOnly; Secure"),
    ("strict-transport-security", "max-age=31536000; includeSubDomains; preload"),
    ("x-content-type-options", "nosniff"),
    ("x-request-id", "01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"),
    ("openai-model", "gpt-5.5"),
    ("openai-processing-ms", "301"),
    ("x-models-etag", "W/\"0123456789abcdef\""),
    ("x-reasoning-included", "true"),
    ("x-codex-turn-state", "sim-turn-state.alice.1200"),
    ("x-codex-plan-type", "pro"),
    ("x-codex-primary-used-percent", "12"),
    ("x-codex-primary-window-minutes", "300"),
    ("x-codex-primary-reset-at", "1796119200"),
    ("x-codex-secondary-used-percent", "34"),
    ("x-codex-secondary-window-minutes", "10080"),
    ("x-codex-secondary-reset-at", "1796637600"),
];

criterion_group!(benches, policy);
criterion_main!(benches);

fn policy(criterion: &mut Criterion) {
    let (request, response) = (map(REQUEST), map(RESPONSE));
    criterion.bench_function("headers/client key", |bencher| {
        bencher.iter(|| client_key(black_box(&request)).map(<[u8]>::len));
    });
    criterion.bench_function("headers/request of 16", |bencher| {
        bencher.iter(|| {
            let policy = RequestPolicy::of(black_box(&request));
            request.keys().filter(|name| policy.passes(name)).count()
        });
    });
    let account_id = "0b3e3b1c-91e5-4a8e-8f0a-6d2f6a1f0c55";
    criterion.bench_function("headers/response of 24", |bencher| {
        bencher
            .iter(|| denied_in_response(black_box(&response), black_box(Some(account_id))).len());
    });
}

fn map(pairs: &'static [(&str, &str)]) -> HeaderMap {
    let pair = |(name, value): &(&'static str, &'static str)| {
        (HeaderName::from_static(name), HeaderValue::from_static(value))
    };
    pairs.iter().map(pair).collect()
}
