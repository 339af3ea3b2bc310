//! Made-up accounts: their tokens, and the `auth.json` a real login would have left. Pure.
//!
//! Every token of an account holds the account's canary text, so that a leak can be found by
//! searching for it.

use base64::{
    Engine,
    prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD},
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// The OAuth client id of the Codex CLI.
pub const CLIENT_ID: &str = "app_EMoamEEZ73f0CkXaXp7hrann";

/// The year 2100: a made-up token never runs out by itself.
const FAR_FUTURE: i64 = 4_102_444_800;

/// One account of the simulated upstream.
#[derive(Clone)]
pub struct SimAccount {
    pub name: String,
    pub access_token: String,
    pub refresh_token: String,
    pub id_token: String,
    pub account_id: String,
    pub user_id: String,
    pub plan: String,
    pub email: String,
}

// === impl SimAccount ===

impl SimAccount {
    /// An account made from its name alone, the same in every run. `name` should hold only
    /// letters, digits and `-`.
    pub fn made_up(name: &str) -> Self {
        Self::with_plan(name, "pro")
    }

    pub fn with_plan(name: &str, plan: &str) -> Self {
        let mut account = Self {
            name: name.to_owned(),
            access_token: String::new(),
            refresh_token: String::new(),
            id_token: String::new(),
            account_id: uuid_of(&format!("account {name}")),
            user_id: format!("user-{}", hex(&format!("user {name}"), 12)),
            plan: plan.to_owned(),
            email: format!("{name}@sim.example"),
        };
        account.access_token = account.mint_access(0, FAR_FUTURE);
        account.refresh_token = account.mint_refresh(0, 0);
        account.id_token = account.mint_id(FAR_FUTURE);
        account
    }

    /// The text that every secret of this account holds: base64url letters only.
    pub fn canary(&self) -> String {
        format!("canary-{}-secret", self.name)
    }

    /// The file that a login of this account leaves in `$CODEX_HOME`.
    pub fn auth_json(&self) -> Vec<u8> {
        let file = json!({
            "auth_mode": "chatgpt",
            "OPENAI_API_KEY": null,
            "tokens": {
                "id_token": self.id_token,
                "access_token": self.access_token,
                "refresh_token": self.refresh_token,
                "account_id": self.account_id,
                "oauth_provenance": {
                    "issuer": "https://auth.openai.com",
                    "client_id": CLIENT_ID,
                },
            },
            "last_refresh": "2099-01-01T00:00:00Z",
        });
        let mut text = format!("{file:#}").into_bytes();
        text.push(b'\n');
        text
    }

    /// An access token; `serial` tells those of one account apart.
    pub fn mint_access(&self, serial: u64, exp: i64) -> String {
        let claims = json!({
            "aud": ["https://api.openai.com/v1"],
            "exp": exp,
            "jti": format!("{}-{serial}", self.name),
            "https://api.openai.com/auth": self.auth_claim(),
            "https://api.openai.com/profile": {"email": self.email, "email_verified": true},
            "scp": ["openid", "profile", "email", "offline_access"],
            "sub": format!("auth0|{}", self.user_id),
        });
        self.jwt(&claims, &format!("access-{serial}"))
    }

    /// A refresh token: the `generation`-th of its `family`.
    pub fn mint_refresh(&self, family: u64, generation: u64) -> String {
        format!("rt_{}.{family}.{generation}", self.canary())
    }

    pub fn mint_id(&self, exp: i64) -> String {
        let claims = json!({
            "aud": [CLIENT_ID],
            "email": self.email,
            "email_verified": true,
            "exp": exp,
            "iss": "https://auth.openai.com",
            "https://api.openai.com/auth": self.auth_claim(),
            "sub": format!("auth0|{}", self.user_id),
        });
        self.jwt(&claims, "id")
    }

    fn auth_claim(&self) -> Value {
        json!({
            "chatgpt_account_id": self.account_id,
            "chatgpt_plan_type": self.plan,
            "chatgpt_user_id": self.user_id,
            "user_id": self.user_id,
        })
    }

    /// A token that parses as a JWT; its third part is the canary, as nobody checks signatures.
    fn jwt(&self, claims: &Value, kind: &str) -> String {
        let header = BASE64_URL_SAFE_NO_PAD.encode(r#"{"alg":"RS256","typ":"JWT","kid":"sim"}"#);
        let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        let mut signature = format!("{}-{kind}", self.canary());
        // A multiple of four letters decodes under strict readers too.
        while signature.len() % 4 != 0 {
            signature.push('A');
        }
        format!("{header}.{payload}.{signature}")
    }
}

/// The first `bytes` bytes of the text's SHA-256, in hex.
pub(super) fn hex(text: &str, bytes: usize) -> String {
    hex_of(&Sha256::digest(text.as_bytes())[..bytes.min(32)])
}

pub(super) fn hex_of(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn uuid_of(text: &str) -> String {
    let hex = hex(text, 16);
    format!("{}-{}-4{}-8{}-{}", &hex[..8], &hex[8..12], &hex[13..16], &hex[17..20], &hex[20..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_secret_of_an_account_holds_its_canary() {
        let account = SimAccount::made_up("alice");
        for secret in [&account.access_token, &account.refresh_token, &account.id_token] {
            assert!(secret.contains(&account.canary()), "{secret}");
        }
    }

    #[test]
    fn every_part_of_a_made_up_token_is_strict_base64url() {
        for name in ["a", "bo", "eve", "long-name"] {
            for part in SimAccount::made_up(name).access_token.split('.') {
                assert!(BASE64_URL_SAFE_NO_PAD.decode(part).is_ok(), "{part}");
            }
        }
    }

    #[test]
    fn an_account_made_twice_is_the_same() {
        assert_eq!(SimAccount::made_up("a").auth_json(), SimAccount::made_up("a").auth_json());
        assert_ne!(SimAccount::made_up("a").account_id, SimAccount::made_up("b").account_id);
    }
}
