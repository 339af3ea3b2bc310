//! `GET responses` with an upgrade: turns over a WebSocket.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures::{SinkExt, StreamExt, stream::SplitSink};
use http::{HeaderMap, HeaderValue, Request, Response};
use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    time::sleep,
};
use yawc::{CompressionLevel, Frame, HttpStream, OpCode, Options, WebSocket, close::CloseCode};

use super::{
    WebSockets,
    account::SimAccount,
    body::{Release, SimBody},
    events::Event,
    peek,
    play::{Cue, cues},
    record::{Ended, Exchange, Protocol, Recorded},
    script::{Action, Loss, Reply, Route, StreamPlan},
    serve::{Visit, answer_body, sleep_ms},
    stage::Facts,
    turns::{Asked, plan_of, refusal, turn_state},
    upstream::Upstream,
    wire::Wire,
};

/// A frame of this length is refused.
const FRAME_MAX: usize = 16 << 20;

type Sink = SplitSink<WebSocket<HttpStream>, Frame>;

/// The connection goes on, or it doesn't.
#[derive(PartialEq, Eq)]
enum Next {
    Message,
    Over,
}

struct Session {
    upstream: Arc<Upstream>,
    wire: Arc<Wire>,
    account: Arc<SimAccount>,
    target: String,
    sink: Sink,
    /// The responses made on this connection, which later ones may continue.
    responses: HashSet<String>,
    compressed: bool,
}

/// Answers the handshake, and serves the connection in a task of its own.
pub(super) fn handshake(visit: Visit) -> Response<SimBody> {
    let account = match visit.admit() {
        Ok(account) => account,
        Err((status, value)) => return visit.json(status, &value),
    };
    if visit.upstream.options.websockets == WebSockets::Refused {
        return visit.json(426, &json!({"detail": "Upgrade Required"}));
    }
    let mut options = Options::default().with_limits(FRAME_MAX, 2 * FRAME_MAX).with_utf8();
    if visit.upstream.options.websockets == WebSockets::Deflate {
        options = options.with_compression_level(CompressionLevel::fast());
    }
    let mut visit = visit;
    let mut request = Request::from_parts(visit.head.clone(), ());
    // The upgrade can be taken only once, so the clone's must be the one that is taken.
    if let Some(upgrade) = visit.head.extensions.remove::<hyper::upgrade::OnUpgrade>() {
        request.extensions_mut().insert(upgrade);
    }
    let Ok((upgraded, future)) = WebSocket::upgrade_with_options(&mut request, options) else {
        return visit.json(400, &json!({"detail": "This is no WebSocket handshake."}));
    };
    let compressed = upgraded.headers().contains_key("sec-websocket-extensions");
    let mut headers = upgraded.headers().clone();
    let etag = visit.upstream.models.lock().etag.clone();
    let extra = [("x-models-etag", etag), ("x-reasoning-included", "true".to_owned())];
    for (name, value) in extra {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    let (upstream, wire) = (Arc::clone(&visit.upstream), Arc::clone(&visit.ties.wire));
    let target = visit.head.uri.path().to_owned();
    tokio::spawn(async move {
        if let Ok(socket) = future.await {
            let (sink, stream) = socket.split();
            let (messages, gone, reader) = listen(stream, Arc::clone(&wire));
            let session = Session {
                upstream,
                wire,
                account,
                target,
                sink,
                responses: HashSet::new(),
                compressed,
            };
            session.serve(messages, gone).await;
            reader.abort();
        }
    });
    visit.respond(101, headers, Vec::new().into())
}

/// Reads frames in a task of its own, so that a client that goes away is seen at once.
fn listen(
    mut stream: futures::stream::SplitStream<WebSocket<HttpStream>>,
    wire: Arc<Wire>,
) -> (mpsc::UnboundedReceiver<Frame>, watch::Receiver<bool>, tokio::task::JoinHandle<()>) {
    let (frames, messages) = mpsc::unbounded_channel();
    let (tell, gone) = watch::channel(false);
    let reader = tokio::spawn(async move {
        loop {
            let frame = tokio::select! {
                frame = stream.next() => frame,
                () = wire.until_lost() => None,
            };
            match frame {
                Some(frame) if frame.opcode() == OpCode::Close => break,
                Some(frame) => drop(frames.send(frame)),
                None => break,
            }
        }
        // Nobody listens any more if the session has ended first.
        let _ = tell.send(true);
    });
    (messages, gone, reader)
}

// === impl Session ===

impl Session {
    async fn serve(
        mut self,
        mut messages: mpsc::UnboundedReceiver<Frame>,
        mut gone: watch::Receiver<bool>,
    ) {
        while let Some(frame) = messages.recv().await {
            if frame.opcode() != OpCode::Text {
                continue;
            }
            let mut exchange = self.record(frame.payload());
            let release = self.upstream.releasable();
            let wire = Arc::clone(&self.wire);
            let next = tokio::select! {
                next = self.turn(frame.payload(), &mut exchange, release) => next,
                _ = gone.wait_for(|gone| *gone) => return,
                () = wire.until_lost() => {
                    exchange.end(Ended::Lost);
                    return;
                }
            };
            exchange.end(if next == Next::Message { Ended::Answered } else { Ended::Lost });
            if next == Next::Over {
                return;
            }
        }
    }

    /// Answers one `response.create`.
    async fn turn(&mut self, body: &[u8], exchange: &mut Exchange, release: Release) -> Next {
        let asked = Asked::of(Arc::clone(&self.account), peek::turn_state_in(body), body);
        let asked = asked.and_then(|asked| self.check(asked));
        let model = asked.as_ref().ok().and_then(|asked| asked.peek.model.clone());
        let action = self.pick(None).or_else(|| model.and_then(|model| self.pick(Some(&model))));
        let (plan, reply) = match action {
            Some(Action::Answer(answer)) => {
                sleep_ms(answer.delay_ms).await;
                let body = answer_body(&answer);
                let value: Value = serde_json::from_slice(&body).unwrap_or_default();
                let headers = headers_json(&answer.headers);
                return self.refuse(exchange, answer.status, value, headers).await;
            }
            Some(Action::Drop(drop)) => {
                sleep_ms(drop.delay_ms).await;
                if drop.how != Loss::Silence {
                    self.wire.lose(drop.how == Loss::Reset);
                    return Next::Over;
                }
                release.clone().released().await;
                (StreamPlan::default(), Reply::default())
            }
            Some(Action::Stream(plan)) => (plan, Reply::default()),
            Some(Action::Reply(reply)) => (plan_of(&reply), reply),
            Some(Action::Issue(_)) | None => (StreamPlan::default(), Reply::default()),
        };
        let asked = match asked {
            Ok(asked) => asked,
            Err((status, value)) => {
                return self.refuse(exchange, status, value, json!({})).await;
            }
        };
        sleep_ms(plan.delay_ms).await;
        let mut headers = HeaderMap::new();
        let limits = match self.upstream.spend(&asked.account, &mut headers) {
            Ok(limits) => limits,
            Err(limit) => {
                let headers = headers_json(&text_pairs(&headers));
                return self.refuse(exchange, 429, limit, headers).await;
            }
        };
        exchange.status(200);
        let turn = asked.turn(&self.upstream, &reply);
        let mut events = turn.events();
        if plan.events.is_none() && !asked.peek.prewarm {
            events.splice(
                1..1,
                [self.metadata(), Event::new("codex.rate_limits", limits.to_string())],
            );
        }
        self.responses.insert(turn.response_id());
        self.play(cues(&plan, &turn, events), release).await
    }

    /// A response can be continued only on the connection that made it.
    fn check(&self, asked: Asked) -> Result<Asked, (u16, Value)> {
        if asked.peek.kind.as_deref() != Some("response.create") {
            return Err(refusal("invalid_request", "Only response.create is understood."));
        }
        match &asked.peek.previous_response_id {
            Some(id) if !self.responses.contains(id) => Err(refusal(
                "previous_response_not_found",
                &format!("Previous response with id '{id}' not found."),
            )),
            _ => Ok(asked),
        }
    }

    fn metadata(&self) -> Event {
        let state = turn_state(&self.account, self.upstream.next());
        let json = json!({
            "type": "response.metadata",
            "headers": {"x-codex-turn-state": state},
            "metadata": {},
        });
        Event::new("response.metadata", json.to_string())
    }

    async fn play(&mut self, cues: Vec<Cue>, release: Release) -> Next {
        for cue in cues {
            let sent = match cue {
                Cue::Event(event) => self.send(Frame::text(event.json)).await,
                Cue::Text(text) => self.send(Frame::text(text)).await,
                Cue::Binary(bytes) => self.send(Frame::binary(bytes)).await,
                Cue::Delay(delay) => {
                    sleep(delay).await;
                    true
                }
                Cue::Stall => {
                    release.clone().released().await;
                    true
                }
                Cue::Half { whole, by_reset } => {
                    self.send_half(*whole, by_reset).await;
                    false
                }
                Cue::Lose { by_reset } => {
                    self.wire.lose(by_reset);
                    false
                }
                Cue::StreamError => {
                    self.wire.lose(false);
                    false
                }
                Cue::Close { code, reason } => {
                    self.send(Frame::close(CloseCode::from(code), reason)).await;
                    // The client answers with a close of its own; the wait for it is bounded.
                    let _ =
                        tokio::time::timeout(Duration::from_secs(1), self.wire.until_lost()).await;
                    false
                }
            };
            if !sent {
                return Next::Over;
            }
        }
        Next::Message
    }

    async fn send(&mut self, frame: Frame) -> bool {
        self.sink.send(frame).await.is_ok()
    }

    /// The beginning of a frame, whose rest never comes.
    async fn send_half(&mut self, whole: Cue, by_reset: bool) {
        let text = match whole {
            Cue::Event(event) => event.json,
            Cue::Text(text) => text,
            Cue::Binary(_)
            | Cue::Delay(_)
            | Cue::Half { .. }
            | Cue::Stall
            | Cue::Lose { .. }
            | Cue::StreamError
            | Cue::Close { .. } => "half".to_owned(),
        };
        // What deflate leaves of an event is not known before; a dozen bytes are surely a part.
        let part = if self.compressed { 12 } else { text.len() / 2 };
        self.wire.lose_after(part, by_reset);
        self.send(Frame::text(text)).await;
    }

    /// The error frame that stands for an HTTP status.
    async fn refuse(
        &mut self,
        exchange: &Exchange,
        status: u16,
        body: Value,
        headers: Value,
    ) -> Next {
        exchange.status(status);
        let error = body.get("error").cloned().unwrap_or(body);
        let json = json!({"type": "error", "status": status, "error": error, "headers": headers});
        if self.send(Frame::text(json.to_string())).await { Next::Message } else { Next::Over }
    }

    fn pick(&self, model: Option<&str>) -> Option<Action> {
        let account = Some(self.account.name.as_str());
        self.upstream.pick(Facts { account, route: Route::WsMessage, model })
    }

    fn record(&self, body: &[u8]) -> Exchange {
        let exchange = self.upstream.recorder.begin(|| Recorded {
            id: 0,
            connection: self.wire.id,
            protocol: Protocol::WebSocket,
            tls: self.wire.tls,
            method: "GET".to_owned(),
            target: self.target.clone(),
            route: Route::WsMessage,
            headers: Vec::new(),
            account: Some(self.account.name.clone()),
            body: Vec::new(),
            body_length: 0,
            status: None,
            ended: Ended::Open,
        });
        exchange.body(body);
        exchange
    }
}

fn headers_json(pairs: &[(String, String)]) -> Value {
    pairs.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
}

fn text_pairs(headers: &HeaderMap) -> Vec<(String, String)> {
    let pairs = headers.iter();
    pairs
        .map(|(name, value)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        })
        .collect()
}
