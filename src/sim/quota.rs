//! What each account has used of its quota, and how the upstream tells it. Pure; times are seconds
//! since the Unix epoch.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The quota of one account: a short window, and the weekly one.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Quota {
    pub primary: Window,
    pub secondary: Option<Window>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Window {
    pub used_percent: f64,
    /// What one turn adds.
    pub per_turn_percent: f64,
    pub window_minutes: i64,
    /// When the window begins anew; 0 stands for one window after the first turn.
    pub resets_at: i64,
}

// === impl Quota ===

impl Default for Quota {
    fn default() -> Self {
        let week = Window { used_percent: 5.0, window_minutes: 10_080, ..Window::default() };
        Self { primary: Window::default(), secondary: Some(week) }
    }
}

impl Quota {
    /// A quota whose short window is used up so far, and ends then.
    pub fn used(used_percent: f64, resets_at: i64) -> Self {
        let mut quota = Self::default();
        quota.primary.used_percent = used_percent;
        quota.primary.resets_at = resets_at;
        quota
    }

    /// Counts one turn, or says when the quota that is used up comes back.
    pub(super) fn spend(&mut self) -> Result<(), i64> {
        let windows = || [Some(&self.primary), self.secondary.as_ref()].into_iter().flatten();
        let spent = windows().filter(|it| it.used_percent >= 100.0).map(|it| it.resets_at).max();
        if let Some(resets_at) = spent {
            return Err(resets_at);
        }
        for window in [Some(&mut self.primary), self.secondary.as_mut()].into_iter().flatten() {
            window.used_percent = (window.used_percent + window.per_turn_percent).min(100.0);
        }
        Ok(())
    }

    /// Begins the windows anew whose time has come.
    pub(super) fn roll(&mut self, now: i64) {
        for window in [Some(&mut self.primary), self.secondary.as_mut()].into_iter().flatten() {
            if window.resets_at == 0 {
                window.resets_at = now + window.window_minutes * 60;
            } else if window.resets_at <= now {
                window.used_percent = 0.0;
                window.resets_at = now + window.window_minutes * 60;
            }
        }
    }

    /// The header family `x-codex-*`.
    pub(super) fn headers(&self, plan: &str, now: i64, into: &mut HeaderMap) {
        let mut put = |name: &'static str, value: String| {
            if let Ok(value) = HeaderValue::from_str(&value) {
                into.insert(HeaderName::from_static(name), value);
            }
        };
        let (first, second) = (&self.primary, self.secondary.as_ref());
        put("x-codex-active-limit", "codex".to_owned());
        put("x-codex-plan-type", plan.to_owned());
        put("x-codex-primary-used-percent", first.used_percent.to_string());
        put("x-codex-primary-window-minutes", first.window_minutes.to_string());
        put("x-codex-primary-reset-at", first.resets_at.to_string());
        put("x-codex-primary-reset-after-seconds", (first.resets_at - now).to_string());
        if let Some(second) = second {
            put("x-codex-secondary-used-percent", second.used_percent.to_string());
            put("x-codex-secondary-window-minutes", second.window_minutes.to_string());
            put("x-codex-secondary-reset-at", second.resets_at.to_string());
            put("x-codex-secondary-reset-after-seconds", (second.resets_at - now).to_string());
        }
        put("x-codex-credits-has-credits", "False".to_owned());
        put("x-codex-credits-unlimited", "False".to_owned());
        put("x-codex-credits-balance", String::new());
    }

    /// The event `codex.rate_limits` of a WebSocket.
    pub(super) fn event(&self, plan: &str) -> Value {
        let window = |it: &Window| {
            json!({
                "used_percent": it.used_percent,
                "window_minutes": it.window_minutes,
                "reset_at": it.resets_at,
            })
        };
        json!({
            "type": "codex.rate_limits",
            "plan_type": plan,
            "rate_limits": {
                "allowed": !self.is_spent(),
                "limit_reached": self.is_spent(),
                "primary": window(&self.primary),
                "secondary": self.secondary.as_ref().map(window),
            },
            "credits": {"has_credits": false, "unlimited": false, "balance": "0"},
        })
    }

    /// The answer of `wham/usage`.
    pub(super) fn usage(&self, plan: &str, now: i64) -> Value {
        let window = |it: &Window| {
            json!({
                "used_percent": it.used_percent.round() as i64,
                "limit_window_seconds": it.window_minutes * 60,
                "reset_after_seconds": (it.resets_at - now).max(0),
                "reset_at": it.resets_at,
            })
        };
        json!({
            "plan_type": plan,
            "rate_limit": {
                "allowed": !self.is_spent(),
                "limit_reached": self.is_spent(),
                "primary_window": window(&self.primary),
                "secondary_window": self.secondary.as_ref().map(window),
            },
            "additional_rate_limits": [],
            "credits": {"has_credits": false, "unlimited": false, "balance": "0"},
            "spend_control": {"reached": false},
            "rate_limit_reached_type": null,
        })
    }

    fn is_spent(&self) -> bool {
        self.primary.used_percent >= 100.0
            || self.secondary.as_ref().is_some_and(|it| it.used_percent >= 100.0)
    }
}

// === impl Window ===

impl Default for Window {
    fn default() -> Self {
        Self { used_percent: 10.0, per_turn_percent: 0.0, window_minutes: 300, resets_at: 0 }
    }
}

/// The body of a 429 for an account that has used up its quota.
pub(super) fn limit_body(plan: &str, resets_at: i64, in_seconds: i64) -> Value {
    json!({"error": {
        "type": "usage_limit_reached",
        "message": "The usage limit has been reached",
        "plan_type": plan,
        "resets_at": resets_at,
        "resets_in_seconds": in_seconds,
    }})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_use_up_the_quota_and_time_gives_it_back() {
        let mut quota = Quota::default();
        quota.primary.used_percent = 50.0;
        quota.primary.per_turn_percent = 25.0;
        quota.roll(1_000);
        assert_eq!(quota.spend(), Ok(()));
        assert_eq!(quota.spend(), Ok(()));
        assert_eq!(quota.spend(), Err(1_000 + 300 * 60));
        quota.roll(1_000 + 300 * 60);
        assert_eq!(quota.spend(), Ok(()));
    }

    #[test]
    fn usage_percents_are_whole_numbers() {
        let mut quota = Quota::used(12.5, 100);
        quota.roll(10);
        let usage = quota.usage("plus", 10);
        assert_eq!(usage["rate_limit"]["primary_window"]["used_percent"], 13);
        assert_eq!(usage["rate_limit"]["primary_window"]["reset_after_seconds"], 90);
    }
}
