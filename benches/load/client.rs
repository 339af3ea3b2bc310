//! The load: clients that each keep one connection and send one request after the other.

use std::{
    future::pending,
    net::SocketAddr,
    time::{Duration, Instant},
};

use bytes::Bytes;
use codex_edge::sim::SimAccount;
use http::{HeaderMap, HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{SendRequest, handshake},
};
use hyper_util::rt::TokioIo;
use tokio::{
    net::TcpStream,
    task::JoinSet,
    time::{sleep_until, timeout},
};

use super::{Fault, process::Server, roles::ACCOUNTS};

/// The size of a request's body.
const BODY_LEN: usize = 2 * 1024;

/// Shorter answers are not the one that was asked for.
const ANSWER_LEN_MIN: usize = 2_000;

/// A client gives up after so many failures.
const FAILURES_MAX: usize = 20;

/// Beyond the end of a measurement, for requests on their way.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where and what to ask.
#[derive(Clone)]
pub(crate) struct Target {
    address: SocketAddr,
    path: &'static str,
    headers: HeaderMap,
}

/// What came of some load.
#[derive(Default)]
pub(crate) struct Measured {
    pub(crate) time: Duration,
    /// What the server's process used meanwhile.
    pub(crate) cpu: Duration,
    pub(crate) failed: usize,
    /// From the request's first byte to the answer's last.
    pub(crate) totals: Vec<Duration>,
    /// To the first byte of the answer's body.
    pub(crate) firsts: Vec<Duration>,
}

/// One connection.
pub(crate) struct Talk {
    sender: SendRequest<Full<Bytes>>,
    target: Target,
}

/// Asks `concurrency` requests at a time for `time`, after a tenth of it that does not count.
pub(crate) async fn press(
    server: &Server,
    target: &Target,
    concurrency: usize,
    time: Duration,
) -> Result<Measured, Fault> {
    let begin = Instant::now() + time / 10;
    let end = begin + time;
    let body = body("gpt-5.5");
    let mut clients = JoinSet::new();
    for _ in 0..concurrency {
        clients.spawn(client(target.clone(), body.clone(), begin, end));
    }
    sleep_until(begin.into()).await;
    let (began, cpu_before) = (Instant::now(), server.cpu());
    sleep_until(end.into()).await;
    let mut sum =
        Measured { time: began.elapsed(), cpu: server.cpu() - cpu_before, ..Measured::default() };
    let gathered = timeout(PATIENCE, async {
        while let Some(part) = clients.join_next().await {
            sum.add(part?);
        }
        Ok::<_, Fault>(())
    });
    gathered.await??;
    Ok(sum)
}

async fn client(target: Target, body: Bytes, begin: Instant, end: Instant) -> Measured {
    let mut seen = Measured::default();
    let mut idle = None;
    while Instant::now() < end && seen.failed < FAILURES_MAX {
        let connected = match idle.take() {
            Some(talk) => Ok(talk),
            None => Talk::connect(target.clone()).await,
        };
        let Ok(mut talk) = connected else {
            seen.failed += 1;
            continue;
        };
        let asked = Instant::now();
        let Ok(first) = talk.turn(body.clone()).await else {
            seen.failed += 1;
            continue;
        };
        let done = Instant::now();
        if (begin..end).contains(&done) {
            seen.totals.push(done - asked);
            seen.firsts.push(first - asked);
        }
        idle = Some(talk);
    }
    seen
}

/// A request as Codex makes it, of [`BODY_LEN`] bytes.
pub(crate) fn body(model: &str) -> Bytes {
    let head = format!(
        "{{\"model\":\"{model}\",\"instructions\":\"You are a coding agent.\",\"tools\":[],\
         \"tool_choice\":\"auto\",\"parallel_tool_calls\":false,\"store\":false,\"stream\":true,\
         \"include\":[\"reasoning.encrypted_content\"],\
         \"prompt_cache_key\":\"01a22eb8-5f41-7992-ae3f-89eb5d5a40e7\",\
         \"input\":[{{\"type\":\"message\",\"role\":\"user\",\"content\":\
         [{{\"type\":\"input_text\",\"text\":\""
    );
    let tail = "\"}]}]}";
    let filling = "Write a function. ".chars().cycle();
    let text: String = filling.take(BODY_LEN - head.len() - tail.len()).collect();
    Bytes::from(format!("{head}{text}{tail}"))
}

// === impl Target ===

impl Target {
    /// The upstream, or what passes everything on to it.
    pub(crate) fn upstream(server: &Server) -> Result<Self, Fault> {
        let account = SimAccount::made_up(ACCOUNTS[0]);
        let mut headers = headers(&account.access_token)?;
        headers.insert("chatgpt-account-id", HeaderValue::from_str(&account.account_id)?);
        Ok(Self { address: server.address, path: "/backend-api/codex/responses", headers })
    }

    pub(crate) fn gateway(server: &Server) -> Result<Self, Fault> {
        let key = server.key.as_deref().ok_or("the gateway told no key")?;
        let headers = headers(key)?;
        Ok(Self { address: server.address, path: "/v1/codex/responses", headers })
    }
}

fn headers(token: &str) -> Result<HeaderMap, Fault> {
    let fixed = |text| HeaderValue::from_static(text);
    let mut headers = HeaderMap::new();
    headers.insert(header::AUTHORIZATION, HeaderValue::from_str(&format!("Bearer {token}"))?);
    headers.insert(header::HOST, fixed("localhost"));
    headers.insert(header::CONTENT_TYPE, fixed("application/json"));
    headers.insert(header::ACCEPT, fixed("text/event-stream"));
    headers.insert(header::USER_AGENT, fixed("codex_cli_rs/0.171.0 (Linux; x86_64)"));
    headers.insert("originator", fixed("codex_cli_rs"));
    headers.insert("session-id", fixed("01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"));
    headers.insert("thread-id", fixed("01a22eb8-5f41-7992-ae3f-89eb5d5a40e7"));
    headers.insert("x-codex-turn-metadata", fixed("{\"turn_id\":\"t\",\"sandbox\":\"none\"}"));
    Ok(headers)
}

// === impl Measured ===

impl Measured {
    pub(crate) fn add(&mut self, mut other: Self) {
        self.time += other.time;
        self.cpu += other.cpu;
        self.failed += other.failed;
        self.totals.append(&mut other.totals);
        self.firsts.append(&mut other.firsts);
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.totals.len() as f64 / self.time.as_secs_f64().max(f64::EPSILON)
    }

    pub(crate) fn cpu_ms_per_request(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / (self.totals.len().max(1) as f64)
    }
}

// === impl Talk ===

impl Talk {
    pub(crate) async fn connect(target: Target) -> Result<Self, Fault> {
        let stream = TcpStream::connect(target.address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        // How it ends is told by the requests on it.
        tokio::spawn(async move {
            let _ = connection.await;
        });
        Ok(Self { sender, target })
    }

    /// Asks, and reads the answer to its end. Gives when its first byte came.
    async fn turn(&mut self, body: Bytes) -> Result<Instant, Fault> {
        let (mut answer, mut length) = self.ask(body).await?;
        let first = Instant::now();
        while let Some(frame) = answer.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        if length < ANSWER_LEN_MIN {
            return Err(format!("an answer of {length} bytes").into());
        }
        Ok(first)
    }

    /// Asks, and reads the first of the answer's body. Gives the rest, and what was read.
    async fn ask(&mut self, body: Bytes) -> Result<(Incoming, usize), Fault> {
        let mut request = Request::post(self.target.path).body(Full::new(body))?;
        *request.headers_mut() = self.target.headers.clone();
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        if response.status() != StatusCode::OK {
            return Err(format!("status {}", response.status()).into());
        }
        let mut answer = response.into_body();
        let frame = answer.frame().await.ok_or("an empty answer")??;
        let length = frame.data_ref().map_or(0, Bytes::len);
        Ok((answer, length))
    }

    /// Asks one request, reads the first of its answer and stays in the middle of it.
    pub(crate) async fn hold(mut self, body: Bytes) -> Result<JoinSet<()>, Fault> {
        let (answer, _) = self.ask(body).await?;
        let mut held = JoinSet::new();
        held.spawn(async move {
            let _both = (self, answer);
            pending::<()>().await;
        });
        Ok(held)
    }

    /// Asks one request and reads its answer.
    pub(crate) async fn once(&mut self, body: Bytes) -> Result<(), Fault> {
        self.turn(body).await.map(drop)
    }
}
