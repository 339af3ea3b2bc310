//! Which account somebody means. Pure.

use crate::admin::{AuthList, ShownAuth};

/// Why it is not clear who is meant.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::cli) enum NameError {
    #[error("the pool has no such account: \"codex-edge accounts list\" shows those it has")]
    Unknown,
    #[error("this names several accounts: {0}. Give the label of one of them")]
    Ambiguous(String),
}

/// The account with this auth id or, if none has it, this label, selector or account id.
pub(super) fn find<'a>(list: &'a AuthList, name: &str) -> Result<&'a ShownAuth, NameError> {
    if let Some(auth) = list.auths.iter().find(|it| it.auth_id == name) {
        return Ok(auth);
    }
    let fits = |it: &&ShownAuth| {
        let others = [it.selector.as_deref(), it.account_id.as_deref()];
        it.label == name || others.into_iter().flatten().any(|it| it == name)
    };
    let matching: Vec<&ShownAuth> = list.auths.iter().filter(fits).collect();
    match matching[..] {
        [] => Err(NameError::Unknown),
        [only] => Ok(only),
        _ => {
            let candidates: Vec<String> = matching.iter().map(|it| describe(it)).collect();
            Err(NameError::Ambiguous(candidates.join(", ")))
        }
    }
}

fn describe(auth: &ShownAuth) -> String {
    let email = auth.email_masked.as_deref().unwrap_or("e-mail unknown");
    format!("{} ({email}, {})", auth.label, auth.auth_id)
}
