//! From attempt to attempt: which one is next, and what a broken one means.

use std::sync::Arc;

use pingora_core::{Error, ErrorSource, ErrorType, Result};
use pingora_proxy::Session;

use super::{
    ctx::{Attempting, Next, Phase, RequestCtx, out_of_order},
    failure,
    proxy::Edge,
    upstream::control::Progress,
};
use crate::{
    domain::refusal::Refusal,
    gateway::{ending::Ending, judge::Loss, settle::End},
};

/// Addresses of one host that an attempt tries.
const ADDRESSES_MAX: usize = 4;

// === impl Edge ===

impl Edge {
    /// The attempt to make now: the one under way on a new connection, the same account with a
    /// renewed credential, or another account.
    pub(super) async fn next_attempt(
        &self,
        session: &mut Session,
        ctx: &mut RequestCtx,
    ) -> Result<()> {
        let (mut turn, refused) = match ctx.take_phase() {
            Phase::Attempting(mut attempting) if attempting.next == Next::Redial => {
                attempting.next = Next::Same;
                attempting.progress = Arc::default();
                ctx.phase = Phase::Attempting(attempting);
                return Ok(());
            }
            Phase::Attempting(attempting) => {
                let Attempting { turn, attempt, next, .. } = *attempting;
                (turn, (next == Next::Renew).then_some(attempt))
            }
            Phase::Choosing(turn) => (*turn, None),
            Phase::Received | Phase::Settled => return fail(out_of_order("upstream_peer"), ctx),
        };
        let next = tokio::select! {
            biased;
            next = self.gateway.next_attempt(&mut turn, refused) => next,
            // An attempt may have to wait for new tokens; nobody makes it for a client that has left.
            gone = gone(session) => {
                ctx.phase = Phase::Choosing(Box::new(turn));
                ctx.end = End::ClientGone;
                return Err(gone.into_down());
            }
        };
        match next {
            Ok(attempt) => {
                let progress = Arc::new(Progress::default());
                let attempting = Attempting { turn, attempt, progress, next: Next::Same };
                ctx.phase = Phase::Attempting(Box::new(attempting));
                Ok(())
            }
            Err(ending) => {
                ctx.phase = Phase::Choosing(Box::new(turn));
                ctx.ending = Some(*ending);
                Error::e_explain(ErrorType::InternalError, "no account can make an attempt")
            }
        }
    }

    /// A host may have addresses that do not work from here; each is tried before the account has
    /// failed.
    pub(super) fn tries_next_address(&self, ctx: &mut RequestCtx) -> bool {
        let Phase::Attempting(attempting) = &mut ctx.phase else { return false };
        let Attempting { turn, attempt, next, .. } = &mut **attempting;
        let origin = &turn.request.config.upstream.codex_base_url;
        let addresses = self.gateway.egress.unreachable(origin).min(ADDRESSES_MAX);
        attempt.addresses_tried += 1;
        let more = attempt.addresses_tried < addresses;
        if more {
            *next = Next::Redial;
        }
        more
    }

    /// What to do after an attempt broke.
    pub(super) fn after_loss(
        &self,
        ctx: &mut RequestCtx,
        error: &Error,
        loss: Option<Loss>,
    ) -> bool {
        let Phase::Attempting(attempting) = &mut ctx.phase else { return false };
        if *error.esource() == ErrorSource::Downstream {
            ctx.end = End::ClientGone;
            return false;
        }
        if matches!(attempting.next, Next::Another | Next::Renew) {
            return true;
        }
        let Attempting { turn, attempt, progress, next } = &mut **attempting;
        failure::log(attempt, error);
        if turn.committed {
            self.gateway.cut();
            ctx.end = End::Cut;
            return false;
        }
        let loss = match loss {
            Some(loss) => loss,
            None if progress.timed_out() => Loss::Timeout,
            None => Loss::BeforeAnswer,
        };
        *next = Next::Another;
        self.gateway.lost(turn, attempt, loss);
        true
    }
}

/// Waits until the client has left. Its whole request has been read.
async fn gone(session: &mut Session) -> Box<Error> {
    loop {
        if let Err(error) = session.as_downstream_mut().read_body_or_idle(true).await {
            return error;
        }
    }
}

/// Ends the request with a refusal of ours.
pub(super) fn fail<T>(refusal: Refusal, ctx: &mut RequestCtx) -> Result<T> {
    ctx.ending = Some(Ending::Refuse(refusal));
    Error::e_explain(ErrorType::InternalError, "the gateway made a mistake")
}
