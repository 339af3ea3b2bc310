//! Who holds which token: bearers, refresh-token families, authorization codes, device codes.
//! Pure; times are seconds since the Unix epoch.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::{account::SimAccount, script::Issue};

const ACCESS_LIFE_S: i64 = 10 * 24 * 3600;
pub(super) const DEVICE_REDIRECT: &str = "https://auth.openai.com/deviceauth/callback";

/// The issuer of all tokens.
#[derive(Default)]
pub(super) struct Authority {
    accounts: Vec<Arc<SimAccount>>,
    access: HashMap<String, Arc<SimAccount>>,
    refresh: HashMap<String, Refresh>,
    dead_families: Vec<u64>,
    codes: HashMap<String, Grant>,
    devices: HashMap<String, Device>,
    /// Who signs in at the next authorization.
    login: Option<Arc<SimAccount>>,
    serial: u64,
}

struct Refresh {
    account: Arc<SimAccount>,
    family: u64,
    generation: u64,
    used: bool,
}

struct Grant {
    account: Arc<SimAccount>,
    challenge: String,
    redirect: String,
}

struct Device {
    user_code: String,
    approved: Option<Arc<SimAccount>>,
}

/// Why a token request is refused: status and body.
#[derive(Debug, PartialEq)]
pub(super) struct Refused(pub(super) u16, pub(super) Value);

// === impl Authority ===

impl Authority {
    pub(super) fn new(accounts: Vec<SimAccount>) -> Self {
        let mut authority = Self::default();
        for account in accounts {
            authority.add(account);
        }
        authority
    }

    pub(super) fn add(&mut self, account: SimAccount) {
        let account = Arc::new(account);
        self.serial += 1;
        let family = self.serial;
        self.access.insert(account.access_token.clone(), Arc::clone(&account));
        self.refresh.insert(
            account.refresh_token.clone(),
            Refresh { account: Arc::clone(&account), family, generation: 0, used: false },
        );
        self.accounts.push(account);
    }

    pub(super) fn accounts(&self) -> &[Arc<SimAccount>] {
        &self.accounts
    }

    pub(super) fn named(&self, name: &str) -> Option<Arc<SimAccount>> {
        self.accounts.iter().find(|it| it.name == name).cloned()
    }

    /// Whose access token this is.
    pub(super) fn holder(&self, access: &str) -> Option<Arc<SimAccount>> {
        self.access.get(access).cloned()
    }

    /// Makes every access token of the account worthless.
    pub(super) fn revoke_access(&mut self, name: &str) {
        self.access.retain(|_, account| account.name != name);
    }

    /// Makes every refresh token of the account worthless.
    pub(super) fn revoke_refresh(&mut self, name: &str) {
        let families = self.refresh.values().filter(|it| it.account.name == name);
        self.dead_families.extend(families.map(|it| it.family));
    }

    /// Makes the family of this refresh token worthless.
    pub(super) fn revoke(&mut self, token: &str) {
        self.dead_families.extend(self.refresh.get(token).map(|it| it.family));
    }

    /// Chooses who signs in at the next authorization; the first account without it.
    pub(super) fn sign_in_as(&mut self, name: &str) -> bool {
        self.login = self.named(name);
        self.login.is_some()
    }

    /// Takes a refresh token for new tokens. One that was used before kills its whole family.
    pub(super) fn refresh(
        &mut self,
        token: &str,
        now: i64,
        issue: &Issue,
    ) -> Result<Value, Refused> {
        let Some(held) = self.refresh.get_mut(token) else {
            return Err(refused_refresh("refresh_token_invalidated", "unknown"));
        };
        let (account, family) = (Arc::clone(&held.account), held.family);
        if self.dead_families.contains(&family) {
            return Err(refused_refresh("refresh_token_invalidated", "revoked"));
        }
        if std::mem::replace(&mut held.used, true) {
            self.dead_families.push(family);
            return Err(refused_refresh("refresh_token_reused", "used already"));
        }
        let generation = held.generation + 1;
        let other = issue.account.as_deref().and_then(|it| self.named(it));
        let account = other.unwrap_or(account);
        // A refresh token that is not replaced stays good.
        if issue.omit.iter().any(|it| it == "refresh_token")
            && let Some(held) = self.refresh.get_mut(token)
        {
            held.used = false;
        }
        let life = issue.life_s.unwrap_or(ACCESS_LIFE_S);
        let mut given = self.issue(&account, family, generation, (now, life));
        if let Some(members) = given.as_object_mut() {
            issue.omit.iter().for_each(|it| drop(members.remove(it)));
        }
        Ok(given)
    }

    /// The code for the account that signs in.
    pub(super) fn authorize(&mut self, challenge: &str, redirect: &str) -> Option<String> {
        let account = self.login.clone().or_else(|| self.accounts.first().cloned())?;
        let grant =
            Grant { account, challenge: challenge.to_owned(), redirect: redirect.to_owned() };
        Some(self.grant(grant))
    }

    /// Takes a code, once, for tokens of a new family.
    pub(super) fn exchange(
        &mut self,
        code: &str,
        verifier: &str,
        redirect: &str,
        now: i64,
    ) -> Result<Value, Refused> {
        let grant = self.codes.remove(code).filter(|grant| {
            grant.redirect == redirect && grant.challenge == challenge_of(verifier)
        });
        let Some(grant) = grant else {
            return Err(Refused(400, json!({"error": "invalid_grant"})));
        };
        self.serial += 1;
        let family = self.serial;
        Ok(self.issue(&grant.account, family, 0, (now, ACCESS_LIFE_S)))
    }

    pub(super) fn device_begin(&mut self) -> (String, String) {
        self.serial += 1;
        let id = format!("deviceauth_sim_{}", self.serial);
        let user_code = format!("SIM0-{:05}", self.serial);
        self.devices.insert(id.clone(), Device { user_code: user_code.clone(), approved: None });
        (id, user_code)
    }

    /// The user types the code and agrees. `None` stands for every code that waits.
    pub(super) fn device_approve(&mut self, user_code: Option<&str>, name: &str) -> bool {
        let Some(account) = self.named(name) else { return false };
        let mut found = false;
        for device in self.devices.values_mut() {
            if user_code.is_none_or(|code| code == device.user_code) {
                device.approved = Some(Arc::clone(&account));
                found = true;
            }
        }
        found
    }

    /// The poll of the device: `None` as long as the user has not agreed.
    pub(super) fn device_poll(&mut self, id: &str, user_code: &str) -> Option<Value> {
        let device = self.devices.get(id).filter(|it| it.user_code == user_code)?;
        let account = device.approved.clone()?;
        self.devices.remove(id);
        let verifier = format!("verifier-of-{id}-which-is-long-enough-for-the-rules");
        let challenge = challenge_of(&verifier);
        let redirect = DEVICE_REDIRECT.to_owned();
        let code = self.grant(Grant { account, challenge: challenge.clone(), redirect });
        Some(json!({
            "authorization_code": code,
            "code_challenge": challenge,
            "code_verifier": verifier,
        }))
    }

    fn grant(&mut self, grant: Grant) -> String {
        self.serial += 1;
        let code = format!("ac_sim_{}", self.serial);
        self.codes.insert(code.clone(), grant);
        code
    }

    fn issue(
        &mut self,
        account: &Arc<SimAccount>,
        family: u64,
        generation: u64,
        (now, life): (i64, i64),
    ) -> Value {
        self.serial += 1;
        let access = account.mint_access(self.serial, now + life);
        let refresh = account.mint_refresh(family, generation);
        self.access.insert(access.clone(), Arc::clone(account));
        self.refresh.insert(
            refresh.clone(),
            Refresh { account: Arc::clone(account), family, generation, used: false },
        );
        json!({
            "id_token": account.mint_id(now + ACCESS_LIFE_S),
            "access_token": access,
            "refresh_token": refresh,
            "token_type": "bearer",
            "expires_in": life,
        })
    }
}

fn refused_refresh(code: &str, why: &str) -> Refused {
    let message = format!("Your refresh token is {why}. Please try signing in again.");
    Refused(401, json!({"error": {"code": code, "message": message, "type": "invalid_request"}}))
}

/// PKCE, method S256.
fn challenge_of(verifier: &str) -> String {
    BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(verifier.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(value: &Value, key: &str) -> String {
        value[key].as_str().unwrap().to_owned()
    }

    fn code(refused: Result<Value, Refused>) -> String {
        text(&refused.unwrap_err().1["error"], "code")
    }

    #[test]
    fn a_refresh_token_used_twice_kills_its_family() {
        let alice = SimAccount::made_up("alice");
        let mut authority = Authority::new(vec![alice.clone()]);
        let first = authority.refresh(&alice.refresh_token, 0, &Issue::default()).unwrap();
        assert_eq!(authority.holder(&text(&first, "access_token")).unwrap().name, "alice");
        assert_eq!(
            code(authority.refresh(&alice.refresh_token, 0, &Issue::default())),
            "refresh_token_reused"
        );
        let next = authority.refresh(&text(&first, "refresh_token"), 0, &Issue::default());
        assert_eq!(code(next), "refresh_token_invalidated");
    }

    #[test]
    fn a_code_is_good_once_with_its_verifier_and_address() {
        let mut authority = Authority::new(vec![SimAccount::made_up("alice")]);
        let code = authority.authorize(&challenge_of("v"), "http://127.0.0.1/cb").unwrap();
        assert!(authority.exchange(&code, "v", "http://127.0.0.1/cb", 0).is_ok());
        assert!(authority.exchange(&code, "v", "http://127.0.0.1/cb", 0).is_err());
        let code = authority.authorize(&challenge_of("v"), "http://127.0.0.1/cb").unwrap();
        assert!(authority.exchange(&code, "w", "http://127.0.0.1/cb", 0).is_err());
    }

    #[test]
    fn a_device_waits_until_its_user_agrees() {
        let mut authority = Authority::new(vec![SimAccount::made_up("alice")]);
        let (id, user_code) = authority.device_begin();
        assert_eq!(authority.device_poll(&id, &user_code), None);
        assert!(authority.device_approve(Some(&user_code), "alice"));
        let answer = authority.device_poll(&id, &user_code).unwrap();
        let code = text(&answer, "authorization_code");
        let tokens = authority.exchange(&code, &text(&answer, "code_verifier"), DEVICE_REDIRECT, 0);
        assert!(tokens.is_ok());
    }
}
