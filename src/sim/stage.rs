//! Which rule of the script decides about a request. Pure.
//!
//! A rule counts a request at most once.

use super::script::{Action, Route, Rule, Script};

/// A script with the count of what each rule has seen.
#[derive(Debug, Default)]
pub(super) struct Stage {
    rules: Vec<(Rule, u64)>,
}

/// What is known of a request when a rule is looked for.
#[derive(Clone, Copy)]
pub(super) struct Facts<'a> {
    pub(super) account: Option<&'a str>,
    pub(super) route: Route,
    /// Absent as long as the body has not been read.
    pub(super) model: Option<&'a str>,
}

// === impl Stage ===

impl Stage {
    pub(super) fn set(&mut self, script: Script) {
        self.rules = script.rules.into_iter().map(|rule| (rule, 0)).collect();
    }

    pub(super) fn add(&mut self, rule: Rule) {
        self.rules.push((rule, 0));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// The action for this request. Rules with a model are looked at when the model is known,
    /// all others when it is not, so that each rule counts a request once.
    pub(super) fn pick(&mut self, facts: Facts<'_>) -> Option<Action> {
        for (rule, seen) in &mut self.rules {
            if !rule.fits(facts) {
                continue;
            }
            *seen += 1;
            if rule.holds(*seen) {
                return Some(rule.action.clone());
            }
        }
        None
    }
}

impl Rule {
    fn fits(&self, facts: Facts<'_>) -> bool {
        let account = self.account.as_deref().is_none_or(|name| Some(name) == facts.account);
        let route = self.route.is_none_or(|route| {
            route == facts.route
                || (route == Route::Turn
                    && matches!(facts.route, Route::Responses | Route::WsMessage))
        });
        let model = match (&self.model, facts.model) {
            (None, None) => true,
            (Some(wanted), Some(given)) => wanted == given,
            (None, Some(_)) | (Some(_), None) => false,
        };
        account && route && model
    }

    /// Whether the rule holds for the `seen`-th request that fits.
    fn holds(&self, seen: u64) -> bool {
        let first = self.nth.unwrap_or(1).max(1);
        let times = self.times.unwrap_or(if self.nth.is_some() { 1 } else { u64::MAX });
        seen >= first && seen - first < times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(account: &str, route: Route) -> Facts<'_> {
        Facts { account: Some(account), route, model: None }
    }

    fn stage(text: &str) -> Stage {
        let mut stage = Stage::default();
        stage.set(Script::parse(text).unwrap());
        stage
    }

    #[test]
    fn a_rule_with_nth_holds_for_that_request_alone() {
        let mut stage = stage(
            r#"{"rules": [{"route": "turn", "nth": 2, "action": {"type": "answer", "status": 503}}]}"#,
        );
        let hits: Vec<bool> =
            (0..4).map(|_| stage.pick(facts("a", Route::Responses)).is_some()).collect();
        assert_eq!(hits, [false, true, false, false]);
    }

    #[test]
    fn a_rule_that_has_run_out_leaves_the_request_to_the_next() {
        let text = r#"
            [[rules]]
            account = "a"
            times = 1
            action = { type = "drop", how = "reset" }

            [[rules]]
            action = { type = "stream", after = 2, end = { failed = { code = "x", message = "y" } } }
        "#;
        let mut stage = stage(text);
        assert!(matches!(stage.pick(facts("b", Route::Models)), Some(Action::Stream(_))));
        assert!(matches!(stage.pick(facts("a", Route::Models)), Some(Action::Drop(_))));
        assert!(matches!(stage.pick(facts("a", Route::Models)), Some(Action::Stream(_))));
    }

    #[test]
    fn a_rule_with_a_model_waits_for_the_body() {
        let mut stage =
            stage(r#"{"rules": [{"model": "m", "action": {"type": "reply", "text": "hi"}}]}"#);
        assert!(stage.pick(facts("a", Route::Responses)).is_none());
        let known = Facts { model: Some("m"), ..facts("a", Route::Responses) };
        assert!(stage.pick(known).is_some());
    }

    #[test]
    fn a_word_that_means_nothing_is_an_error() {
        let text = r#"{"rules": [{"colour": "red", "action": {"type": "reply"}}]}"#;
        assert!(Script::parse(text).is_err());
    }
}
