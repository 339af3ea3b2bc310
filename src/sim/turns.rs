//! `POST responses`, and what it has in common with the WebSocket.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use serde_json::{Value, json};

use super::{
    account::SimAccount,
    body::SimBody,
    events::{Content, Turn},
    peek::{self, Peek},
    play::{self, Step},
    script::{Action, Framing, Reply, StreamPlan},
    serve::{Answered, Visit, overlay, sleep_ms},
    upstream::Upstream,
};

/// A request for a turn that was read and found good.
pub(super) struct Asked {
    pub(super) account: Arc<SimAccount>,
    pub(super) peek: Peek,
    lite: bool,
    compaction: bool,
    length: usize,
}

/// Why a turn is refused: status and body.
pub(super) type Refusal = (u16, Value);

/// Answers `POST responses`.
pub(super) async fn answer(visit: Visit, action: Option<Action>, body: &[u8]) -> Answered {
    let account = match visit.admit() {
        Ok(account) => account,
        Err((status, value)) => return Ok(visit.json(status, &value)),
    };
    let header = |name: &str| visit.head.headers.get(name).and_then(|it| it.to_str().ok());
    let read = peek::decode(body, header("content-encoding"))
        .ok_or_else(|| (400, json!({"detail": "The body does not match its content-encoding."})));
    let maker = header("x-codex-turn-state").and_then(peek::turn_state_maker);
    let asked = read.and_then(|plain| Asked::of(account, maker, &plain));
    let asked = match asked {
        Ok(asked) => asked,
        Err((status, value)) => return Ok(visit.json(status, &value)),
    };
    let action = action.or_else(|| visit.pick(asked.peek.model.as_deref()));
    match action {
        Some(Action::Answer(answer)) => {
            sleep_ms(answer.delay_ms).await;
            Ok(visit.scripted(&answer))
        }
        Some(Action::Stream(plan)) => stream(visit, &asked, &plan, &Reply::default()).await,
        Some(Action::Reply(reply)) => {
            let plan = plan_of(&reply);
            stream(visit, &asked, &plan, &reply).await
        }
        Some(Action::Drop(_) | Action::Issue(_)) | None => {
            stream(visit, &asked, &StreamPlan::default(), &Reply::default()).await
        }
    }
}

/// A plan with what a reply says about the way it is sent.
pub(super) fn plan_of(reply: &Reply) -> StreamPlan {
    StreamPlan {
        event_delay_ms: reply.event_delay_ms,
        headers: reply.headers.clone(),
        ..StreamPlan::default()
    }
}

async fn stream(visit: Visit, asked: &Asked, plan: &StreamPlan, reply: &Reply) -> Answered {
    sleep_ms(plan.delay_ms).await;
    let mut headers = normal_headers(&visit.upstream, asked);
    if let Err(limit) = visit.upstream.spend(&asked.account, &mut headers) {
        headers.insert("content-type", HeaderValue::from_static("application/json"));
        return Ok(visit.respond(429, headers, Bytes::from(limit.to_string())));
    }
    headers.insert("content-type", HeaderValue::from_static("text/event-stream"));
    if plan.gzip {
        headers.insert("content-encoding", HeaderValue::from_static("gzip"));
    }
    overlay(&mut headers, &plan.headers);
    let turn = asked.turn(&visit.upstream, reply);
    let events = turn.events();
    let simple = plan.events.is_none() && !plan.gzip && plan.framing == Framing::Lf;
    let steps = if simple && plan.after.is_none() && plan.event_delay_ms == 0 {
        let frames = events.iter().map(|event| event.framed(Framing::Lf, false));
        frames.map(|frame| Step::Data(Bytes::from(frame))).collect()
    } else {
        play::steps(play::cues(plan, &turn, events), plan.framing, plan.gzip)
    };
    let status = plan.status.unwrap_or(200);
    visit.ties.exchange.status(status);
    let mut response = Response::new(SimBody::stream(steps, visit.ties));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::OK);
    *response.headers_mut() = headers;
    Ok(response)
}

/// The headers of the real service, save those of the quota.
fn normal_headers(upstream: &Upstream, asked: &Asked) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(24);
    let serial = upstream.next();
    let mut put = |name: &'static str, value: String| {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    };
    put("openai-model", asked.peek.model.clone().unwrap_or_default());
    put("x-codex-turn-state", turn_state(&asked.account, serial));
    put("x-models-etag", upstream.models.lock().etag.clone());
    put("x-request-id", format!("req_sim_{serial}"));
    put("x-reasoning-included", "true".to_owned());
    put("cf-ray", format!("{serial:016x}-SIM"));
    put("server", "cloudflare".to_owned());
    put("cache-control", "no-cache".to_owned());
    headers
}

pub(super) fn turn_state(account: &SimAccount, serial: u64) -> String {
    format!("{}{}.{serial}", peek::TURN_STATE, account.name)
}

// === impl Asked ===

impl Asked {
    /// Checks what the real service checks. `state_maker` made the turn state that came along.
    pub(super) fn of(
        account: Arc<SimAccount>,
        state_maker: Option<String>,
        plain: &[u8],
    ) -> Result<Self, Refusal> {
        let peek = Peek::of(plain)
            .ok_or_else(|| (400, json!({"detail": "The body is no JSON object of a request."})))?;
        if peek.model.is_none() {
            return Err(refusal("missing_required_parameter", "Missing parameter: 'model'."));
        }
        if peek::foreign_seal(plain, &account.name).is_some() {
            let message = "The encrypted content could not be verified.";
            return Err(refusal("invalid_encrypted_content", message));
        }
        if state_maker.is_some_and(|maker| maker != account.name) {
            return Err(refusal("invalid_turn_state", "The turn state is another account's."));
        }
        Ok(Self {
            lite: peek::is_lite(plain),
            compaction: peek::wants_compaction(plain),
            length: plain.len(),
            account,
            peek,
        })
    }

    /// The answer to this request.
    pub(super) fn turn(&self, upstream: &Upstream, reply: &Reply) -> Turn {
        let content = if self.peek.prewarm {
            Content::Nothing
        } else if self.compaction {
            Content::Compaction
        } else {
            Content::of(reply, upstream.options.deltas, self.lite)
        };
        Turn {
            serial: upstream.next(),
            model: self.peek.model.clone().unwrap_or_default(),
            account: self.account.name.clone(),
            created_at: upstream.now(),
            input_tokens: (self.length / 4) as u64,
            reasoning: reply.reasoning || upstream.options.reasoning,
            content,
        }
    }
}

pub(super) fn refusal(code: &str, message: &str) -> Refusal {
    let error = json!({
        "type": "invalid_request_error", "code": code, "message": message, "param": null,
    });
    (400, json!({"error": error}))
}
