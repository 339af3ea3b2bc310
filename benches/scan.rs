//! How fast bodies and streams are read in passing.
//!
//! `cargo bench --bench scan`; the throughput counts decoded bytes.

#![expect(clippy::expect_used, reason = "a benchmark that cannot go on should stop")]

use std::{fmt::Write as _, hint::black_box, time::Duration};

use codex_edge::protocol::{
    encoding::Decoder,
    events::StreamReader,
    request::{Inspection, Inspector},
};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::HeaderValue;

/// What one read of a socket brings.
const PIECE: usize = 64 * 1024;
const MIB: usize = 1024 * 1024;

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_secs(1))
        .measurement_time(Duration::from_secs(4));
    targets = requests, streams
}
criterion_main!(benches);

fn requests(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("request");
    let bodies = [
        ("small 2 KiB", body(2 * 1024, Filling::Turns)),
        ("turns 10 MiB", body(10 * MIB, Filling::Turns)),
        ("turns 60 MiB", body(60 * MIB, Filling::Turns)),
        ("image 10 MiB", body(10 * MIB, Filling::Image)),
        ("short strings 10 MiB", body(10 * MIB, Filling::ShortStrings)),
        ("numbers 10 MiB", body(10 * MIB, Filling::Numbers)),
    ];
    for (name, body) in &bodies {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("scan", name), body, |bencher, body| {
            bencher.iter(|| inspect(black_box(body)));
        });
    }
    let body = &bodies[1].1;
    let compressed = zstd::bulk::compress(body, 3).expect("compressible");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("zstd and scan/turns 10 MiB", |bencher| {
        bencher.iter(|| inspect_zstd(black_box(&compressed)));
    });
    group.finish();
}

fn streams(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("stream");
    let streams = [("20 events", stream(20, 40)), ("deltas of 1 MB", stream(20, 1_000_000))];
    for (name, stream) in &streams {
        group.throughput(Throughput::Bytes(stream.len() as u64));
        group.bench_with_input(BenchmarkId::new("read", name), stream, |bencher, stream| {
            bencher.iter(|| read(black_box(stream)));
        });
    }
    group.finish();
}

fn inspect(body: &[u8]) -> Inspection {
    let mut inspector = Inspector::new();
    for piece in body.chunks(PIECE) {
        inspector.feed(piece).expect("valid");
    }
    inspector.finish().expect("valid")
}

fn inspect_zstd(body: &[u8]) -> Inspection {
    let zstd = HeaderValue::from_static("zstd");
    let mut decoder = Decoder::for_encoding(Some(&zstd), 64 * MIB as u64).expect("known");
    let mut inspector = Inspector::new();
    for piece in body.chunks(PIECE) {
        decoder.feed(piece, &mut |text| inspector.feed(text).expect("valid")).expect("valid");
    }
    decoder.finish().expect("complete");
    inspector.finish().expect("valid")
}

fn read(stream: &[u8]) -> (usize, Option<String>) {
    let (mut reader, mut seen, mut last) = (StreamReader::default(), 0, None);
    for piece in stream.chunks(16 * 1024) {
        reader.feed(piece, &mut |event| {
            seen += 1;
            last = event.name;
        });
    }
    (seen, last)
}

/// What the bulk of a body is.
#[derive(Clone, Copy)]
enum Filling {
    /// Messages, tool calls and their outputs, as a long session has them.
    Turns,
    /// One picture, inline.
    Image,
    /// Keys and values of a few letters.
    ShortStrings,
    Numbers,
}

fn body(len: usize, filling: Filling) -> Vec<u8> {
    let mut text = String::from(r#"{"model":"gpt-5.5","stream":true,"input":["#);
    let mut number = 0_usize;
    while text.len() < len.saturating_sub(300) {
        if number > 0 {
            text.push(',');
        }
        match filling {
            Filling::Turns => item(&mut text, number),
            Filling::Image => {
                text.push_str(r#"{"type":"input_image","image_url":"data:image/png;base64,"#);
                text.extend(std::iter::repeat_n("iVBORw0KGgoAAAANSUhEUgAA", len / 24));
                text.push_str("\"}");
            }
            Filling::ShortStrings => {
                let _ = write!(text, r#"{{"id":"a{number}","role":"user","kind":"x","to":["b"]}}"#);
            }
            Filling::Numbers => {
                let _ = write!(text, "[{number},-{number}.25,1e{}]", number % 30);
            }
        }
        number += 1;
    }
    text.push_str(
        r#"],"tool_choice":"auto","parallel_tool_calls":true,"store":false,
        "prompt_cache_key":"01a22eb8-5f41-7992-ae3f-89eb5d5a40e7",
        "client_metadata":{"x-codex-turn-metadata":"{\"turn_id\":\"t\",\"model\":\"gpt-5.5\"}"}}"#,
    );
    text.into_bytes()
}

/// One item of a conversation; its texts have the escapes that source code brings.
fn item(text: &mut String, number: usize) {
    const CODE: &str = r#"fn main() {\n    let name = \"world\";\n    println!(\"hello {name}\");\n}\n\n// A comment of the usual length that says why this is so.\n"#;
    const PROSE: &str = "The scanner walks the document without a tree and keeps what it was asked for, nothing more. ";
    match number % 3 {
        0 => {
            let _ = write!(
                text,
                r#"{{"type":"message","role":"user","id":"msg_{number}","content":[{{"type":"input_text","text":"{}"}}]}}"#,
                PROSE.repeat(number % 17 + 1)
            );
        }
        1 => {
            let _ = write!(
                text,
                r#"{{"type":"function_call","id":"fc_{number}","call_id":"call_{number}","name":"shell","arguments":"{{\"command\":[\"rg\",\"-n\",\"feed\"],\"workdir\":\"/home/user\"}}"}}"#
            );
        }
        _ => {
            let _ = write!(
                text,
                r#"{{"type":"function_call_output","call_id":"call_{number}","output":"{}"}}"#,
                CODE.repeat(number % 23 + 1)
            );
        }
    }
}

/// A streamed answer with so many deltas, each of so many letters.
fn stream(events: usize, letters: usize) -> Vec<u8> {
    let mut text = String::from(
        "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\",\"status\":\"in_progress\"}}\n\n",
    );
    let delta = "letters ".repeat(letters.div_ceil(8));
    for number in 0..events.saturating_sub(2) {
        let _ = write!(
            text,
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"item_id\":\"msg_1\",\"output_index\":0,\"content_index\":0,\"sequence_number\":{number},\"delta\":\"{delta}\"}}\n\n"
        );
    }
    text.push_str("event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"resp_1\",\"model\":\"gpt-5.5\",\"usage\":{\"input_tokens\":100,\"input_tokens_details\":{\"cached_tokens\":50},\"output_tokens\":20,\"output_tokens_details\":{\"reasoning_tokens\":5},\"total_tokens\":120}}}\n\n");
    text.into_bytes()
}
