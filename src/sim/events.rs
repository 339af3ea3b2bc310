//! The events of a normal answer, as the real service writes them. Pure.

use super::{
    peek::SEALED,
    script::{Call, Framing, Reply},
};

const TEXT: &str = "Hello from the simulated upstream: all is well here today.";

/// One event: its type and its JSON.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) kind: String,
    pub(super) json: String,
}

/// One answer that a model gives.
#[derive(Clone, Debug)]
pub(super) struct Turn {
    /// Unlike that of any other answer.
    pub(super) serial: u64,
    pub(super) model: String,
    pub(super) account: String,
    pub(super) created_at: i64,
    pub(super) input_tokens: u64,
    pub(super) content: Content,
    pub(super) reasoning: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Content {
    /// Nothing at all: the answer to a prewarm.
    Nothing,
    Text {
        text: String,
        deltas: usize,
    },
    Function {
        name: String,
        arguments: String,
    },
    Custom {
        name: String,
        input: String,
    },
    Compaction,
}

// === impl Content ===

impl Content {
    /// What a reply of the script asks for; `lite` models know other tools.
    pub(super) fn of(reply: &Reply, deltas: usize, lite: bool) -> Self {
        match (&reply.call, &reply.command) {
            (Some(Call { name, arguments: serde_json::Value::String(input) }), _) => {
                Self::Custom { name: name.clone(), input: input.clone() }
            }
            (Some(Call { name, arguments }), _) => {
                Self::Function { name: name.clone(), arguments: arguments.to_string() }
            }
            (None, Some(command)) if lite => Self::Custom {
                name: "exec".to_owned(),
                input: format!(
                    "const result = await tools.exec_command({{cmd: {}}});\ntext(result.output);\n",
                    quoted(command)
                ),
            },
            (None, Some(command)) => Self::Function {
                name: "exec_command".to_owned(),
                arguments: format!(r#"{{"cmd":{}}}"#, quoted(command)),
            },
            (None, None) => Self::Text {
                text: reply.text.clone().unwrap_or_else(|| TEXT.to_owned()),
                deltas: reply.deltas.unwrap_or(deltas),
            },
        }
    }
}

// === impl Turn ===

impl Turn {
    pub(super) fn response_id(&self) -> String {
        format!("resp_sim_{}", self.serial)
    }

    /// All events, in order.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = vec![self.created(), self.in_progress()];
        let mut output = Vec::new();
        if self.reasoning {
            let item = self.reasoning_item();
            events.push(self.item_event("response.output_item.added", 0, &item));
            events.push(self.item_event("response.output_item.done", 0, &item));
            output.push(item);
        }
        let index = output.len();
        match &self.content {
            Content::Nothing => {
                events.truncate(1);
                events.push(self.completed(&[]));
                return events;
            }
            Content::Text { text, deltas } => {
                events.push(self.added(index));
                events.extend(pieces(text, *deltas).into_iter().map(|it| self.delta(index, it)));
            }
            Content::Function { .. } | Content::Custom { .. } | Content::Compaction => {
                events.push(self.added(index));
            }
        }
        events.push(self.done(index));
        output.push(self.item(false));
        events.push(self.completed(&output));
        // The service numbers its events.
        for (number, event) in events.iter_mut().enumerate() {
            let at = event.json.len() - 1;
            event.json.insert_str(at, &format!(r#","sequence_number":{number}"#));
        }
        events
    }

    /// One event by its short name in scripts.
    pub(super) fn named(&self, name: &str) -> Option<Event> {
        Some(match name {
            "created" => self.created(),
            "in_progress" => self.in_progress(),
            "added" => self.added(0),
            "delta" => self.delta(0, "word "),
            "done" => self.done(0),
            "completed" => self.completed(&[self.item(false)]),
            "keepalive" => Event::new("keepalive", r#"{"type":"keepalive"}"#.to_owned()),
            _ => return None,
        })
    }

    pub(super) fn failed(&self, code: &str, message: &str) -> Event {
        let error = format!(r#"{{"code":{},"message":{}}}"#, quoted(code), quoted(message));
        self.response_event("response.failed", "failed", &format!(r#","error":{error}"#))
    }

    pub(super) fn incomplete(&self, reason: &str) -> Event {
        let details = format!(r#","incomplete_details":{{"reason":{}}}"#, quoted(reason));
        self.response_event("response.incomplete", "incomplete", &details)
    }

    fn created(&self) -> Event {
        self.response_event("response.created", "in_progress", r#","error":null,"output":[]"#)
    }

    fn in_progress(&self) -> Event {
        self.response_event("response.in_progress", "in_progress", r#","error":null,"output":[]"#)
    }

    fn completed(&self, output: &[String]) -> Event {
        let (input, written) = (self.input_tokens, 8 * output.len());
        let rest = format!(
            concat!(
                r#","error":null,"output":[{}],"usage":{{"input_tokens":{},"#,
                r#""input_tokens_details":{{"cached_tokens":0}},"output_tokens":{},"#,
                r#""output_tokens_details":{{"reasoning_tokens":0}},"total_tokens":{}}}"#
            ),
            output.join(","),
            input,
            written,
            input + written as u64,
        );
        self.response_event("response.completed", "completed", &rest)
    }

    fn response_event(&self, kind: &'static str, status: &str, rest: &str) -> Event {
        let json = format!(
            concat!(
                r#"{{"type":"{}","response":{{"id":"{}","object":"response","created_at":{},"#,
                r#""status":"{}","model":{},"store":false{}}}}}"#
            ),
            kind,
            self.response_id(),
            self.created_at,
            status,
            quoted(&self.model),
            rest,
        );
        Event::new(kind, json)
    }

    fn added(&self, index: usize) -> Event {
        self.item_event("response.output_item.added", index, &self.item(true))
    }

    fn done(&self, index: usize) -> Event {
        self.item_event("response.output_item.done", index, &self.item(false))
    }

    fn item_event(&self, kind: &'static str, index: usize, item: &str) -> Event {
        Event::new(kind, format!(r#"{{"type":"{kind}","output_index":{index},"item":{item}}}"#))
    }

    fn delta(&self, index: usize, text: &str) -> Event {
        let json = format!(
            concat!(
                r#"{{"type":"response.output_text.delta","item_id":"msg_sim_{}","#,
                r#""output_index":{},"content_index":0,"delta":{}}}"#
            ),
            self.serial,
            index,
            quoted(text),
        );
        Event::new("response.output_text.delta", json)
    }

    /// The item of this answer, as it is when it begins or when it is done.
    fn item(&self, begins: bool) -> String {
        let serial = self.serial;
        let status = if begins { "in_progress" } else { "completed" };
        match &self.content {
            Content::Nothing => "{}".to_owned(),
            Content::Text { .. } if begins => format!(
                r#"{{"id":"msg_sim_{serial}","type":"message","status":"{status}","role":"assistant","content":[]}}"#
            ),
            Content::Text { text, .. } => format!(
                concat!(
                    r#"{{"id":"msg_sim_{}","type":"message","status":"{}","role":"assistant","#,
                    r#""content":[{{"type":"output_text","annotations":[],"text":{}}}]}}"#
                ),
                serial,
                status,
                quoted(text)
            ),
            Content::Function { name, arguments } => format!(
                concat!(
                    r#"{{"id":"fc_sim_{}","type":"function_call","status":"{}","#,
                    r#""call_id":"call_sim_{}","name":{},"arguments":{}}}"#
                ),
                serial,
                status,
                serial,
                quoted(name),
                quoted(if begins { "" } else { arguments }),
            ),
            Content::Custom { name, input } => format!(
                concat!(
                    r#"{{"id":"ctc_sim_{}","type":"custom_tool_call","status":"{}","#,
                    r#""call_id":"call_sim_{}","name":{},"input":{}}}"#
                ),
                serial,
                status,
                serial,
                quoted(name),
                quoted(if begins { "" } else { input }),
            ),
            Content::Compaction => format!(
                r#"{{"id":"cmp_sim_{serial}","type":"compaction","encrypted_content":"{}"}}"#,
                self.sealed()
            ),
        }
    }

    fn reasoning_item(&self) -> String {
        format!(
            r#"{{"id":"rs_sim_{}","type":"reasoning","summary":[],"encrypted_content":"{}"}}"#,
            self.serial,
            self.sealed()
        )
    }

    /// Encrypted content, which only the account that made it may send back.
    pub(super) fn sealed(&self) -> String {
        format!("{SEALED}{}.{}", self.account, self.serial)
    }
}

// === impl Event ===

impl Event {
    pub(super) fn new(kind: &str, json: String) -> Self {
        Self { kind: kind.to_owned(), json }
    }

    /// As an event of a stream.
    pub(super) fn framed(&self, framing: Framing, last: bool) -> String {
        let Self { kind, json } = self;
        match framing {
            Framing::Lf => format!("event: {kind}\ndata: {json}\n\n"),
            Framing::Cr => format!("event: {kind}\rdata: {json}\r\r"),
            Framing::Crlf => format!("event: {kind}\r\ndata: {json}\r\n\r\n"),
            Framing::NoFinalBlank if last => format!("event: {kind}\ndata: {json}"),
            Framing::NoFinalBlank => format!("event: {kind}\ndata: {json}\n\n"),
            Framing::DataOnly => format!("data:{json}\n\n"),
            Framing::Comments => format!(": so it goes\n\nevent: {kind}\nid: 7\ndata: {json}\n\n"),
        }
    }
}

pub(super) fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Cuts the text into `count` pieces of about the same length; a longer count repeats it.
fn pieces(text: &str, count: usize) -> Vec<&str> {
    let letters = text.chars().count();
    let each = (letters / count.max(1)).max(1);
    let mut found = Vec::with_capacity(count);
    let mut rest = text;
    while found.len() + 1 < count {
        let end = rest.char_indices().nth(each).map_or(rest.len(), |(at, _)| at);
        let (piece, tail) = rest.split_at(end);
        found.push(piece);
        rest = if tail.is_empty() { text } else { tail };
    }
    if count > 0 {
        found.push(rest);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(content: Content) -> Turn {
        Turn {
            serial: 7,
            model: "gpt-\"5".to_owned(),
            account: "a".to_owned(),
            created_at: 1,
            input_tokens: 2,
            content,
            reasoning: true,
        }
    }

    #[test]
    fn every_event_is_json_that_names_its_type() {
        let contents = [
            Content::Nothing,
            Content::Text { text: "äöü and more".to_owned(), deltas: 3 },
            Content::Function { name: "f".to_owned(), arguments: "{\"a\":1}".to_owned() },
            Content::Custom { name: "exec".to_owned(), input: "text(1)\n".to_owned() },
            Content::Compaction,
        ];
        for content in contents {
            for event in turn(content.clone()).events() {
                let value: serde_json::Value = serde_json::from_str(&event.json).unwrap();
                assert_eq!(value["type"], event.kind.as_str());
            }
        }
    }

    #[test]
    fn the_deltas_add_up_to_the_text() {
        assert_eq!(pieces("abcdefg", 3).concat(), "abcdefg");
        assert_eq!(pieces("abcdefg", 1), ["abcdefg"]);
        assert_eq!(pieces("ab", 5).len(), 5);
        assert!(pieces("ab", 0).is_empty());
    }
}
