//! The fuzzer's entries on a small corpus and its mutations, a bounded number of times.

use std::io::Write as _;

use proptest::prelude::*;

#[path = "../../fuzz/entry.rs"]
mod entry;

const STREAM: &[u8] = b"\x05event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"r\"}}\r\n\r\n: c\n\ndata:{\"type\":\"response.output_text.delta\",\ndata: \"delta\":\"\\ud83d\\ude00\"}\n\ndata: [DONE]\n\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":1}}}\r\r";
const BODY: &[u8] = br#"{"model":"gpt-5.5","stream":true,"prompt_cache_key":"a\u0062","client_metadata":{"x-codex-turn-metadata":"{\"a\":[1,2.5e3]}"},"input":[{"a":[true,false,null,-0.1]}]}"#;
const CODEX: &[u8] = br#"{"auth_mode":"chatgpt","OPENAI_API_KEY":null,"tokens":{"id_token":"e30.eyJleHAiOjEsInN1YiI6InUifQ.e30","access_token":"e30.eyJodHRwczovL2FwaS5vcGVuYWkuY29tL2F1dGgiOnsiY2hhdGdwdF9hY2NvdW50X2lkIjoiYSJ9fQ.e30","refresh_token":"r","account_id":"a"},"last_refresh":"2026-11-30T23:13:37.803221861Z"}"#;
const FLAT: &[u8] = b"\xef\xbb\xbf{\n  \"type\": \"codex\", \"access_token\": \"\\u0061\", \"access_token\": \"b\",\n  \"expired\": \"2026-12-01T10:00:00+08:00\", \"disabled\": 1, \"tokens\": [1e5, {\"}\": \"]\"}]\n}\n";

fn corpus() -> Vec<Vec<u8>> {
    let zstd = zstd::bulk::compress(BODY, 3).unwrap();
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(BODY).unwrap();
    let mut zlib = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    zlib.write_all(BODY).unwrap();
    // The first byte sets the size of the pieces and, for encoded bodies, the coding.
    vec![
        Vec::new(),
        STREAM.to_vec(),
        [b"\x06", BODY].concat(),
        CODEX.to_vec(),
        FLAT.to_vec(),
        b"e30.eyJleHAiOjEsInN1YiI6InUifQ.e30".to_vec(),
        [b"\x06".to_vec(), zstd].concat(),
        [b"\x04".to_vec(), gzip.finish().unwrap()].concat(),
        [b"\x05".to_vec(), zlib.finish().unwrap()].concat(),
    ]
}

fn run_all(data: &[u8]) {
    entry::request(data);
    entry::stream(data);
    entry::encoding(data);
    entry::credential(data);
}

#[test]
fn the_corpus_passes() {
    for data in corpus() {
        run_all(&data);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_bytes_pass(data in prop::collection::vec(any::<u8>(), 0..300)) {
        run_all(&data);
    }

    #[test]
    fn random_json_letters_pass(data in r#"[\x00-\x1f][\[\]{}",:\\u0-9a-f.e+\- \n]{0,60}"#) {
        run_all(data.as_bytes());
    }

    #[test]
    fn mutations_of_the_corpus_pass(
        pick in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..6),
    ) {
        let corpus = corpus();
        let mut data = pick.get(&corpus).clone();
        for (place, byte, change) in changes {
            let at = place.index(data.len() + 1);
            match change {
                0 => data.insert(at, byte),
                1 if at < data.len() => { data.remove(at); }
                _ if at < data.len() => data[at] = byte,
                _ => {}
            }
        }
        run_all(&data);
    }
}
