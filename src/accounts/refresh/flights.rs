//! Renewals under way, one for each refresh token, with everybody who waits for it.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::domain::credential::Fingerprint;

/// How one renewal ended, whoever asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    /// The pool holds the credential with this access token.
    Fresh(Fingerprint),
    /// Only a new sign-in helps.
    NeedsLogin,
    /// It may work the next time.
    Passing,
    /// The credential is in the pool no more, or belongs to another account now.
    Gone,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Flights(Arc<Mutex<HashMap<Fingerprint, watch::Receiver<Option<Landing>>>>>);

/// A seat in a flight. Who leaves early changes nothing for the others.
#[derive(Debug)]
pub(super) struct Seat(watch::Receiver<Option<Landing>>);

/// The one that flies. If it is dropped before it has landed, everybody is told to try again.
#[derive(Debug)]
pub(super) struct Pilot {
    flights: Flights,
    token: Fingerprint,
    tell: watch::Sender<Option<Landing>>,
}

// === impl Flights ===

impl Flights {
    /// A seat in the flight of this token. The first one gets the pilot too, and has to see to it
    /// that it flies.
    pub(super) fn board(&self, token: Fingerprint) -> (Seat, Option<Pilot>) {
        match self.0.lock().entry(token) {
            Entry::Occupied(flight) => (Seat(flight.get().clone()), None),
            Entry::Vacant(place) => {
                let (tell, hear) = watch::channel(None);
                place.insert(hear.clone());
                (Seat(hear), Some(Pilot { flights: self.clone(), token, tell }))
            }
        }
    }
}

// === impl Seat ===

impl Seat {
    pub(super) async fn landing(mut self) -> Landing {
        let landed = self.0.wait_for(Option::is_some).await;
        landed.ok().and_then(|it| *it).unwrap_or(Landing::Passing)
    }
}

// === impl Pilot ===

impl Pilot {
    /// Ends the flight. Who comes from now on begins another one.
    pub(super) fn land(self, landing: Landing) {
        let mut flights = self.flights.0.lock();
        flights.remove(&self.token);
        self.tell.send_replace(Some(landing));
        drop(flights);
    }
}

impl Drop for Pilot {
    fn drop(&mut self) {
        if self.tell.borrow().is_none() {
            self.flights.0.lock().remove(&self.token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: Fingerprint = Fingerprint::from_bytes([1; 16]);

    #[tokio::test]
    async fn all_seats_hear_of_one_landing_and_the_next_flight_is_another() {
        let flights = Flights::default();
        let (first, pilot) = flights.board(TOKEN);
        let (second, nobody) = flights.board(TOKEN);
        assert!(nobody.is_none());
        drop(first);
        pilot.unwrap().land(Landing::NeedsLogin);
        assert_eq!(second.landing().await, Landing::NeedsLogin);
        assert!(flights.board(TOKEN).1.is_some());
    }

    #[tokio::test]
    async fn a_flight_that_breaks_off_keeps_nobody_waiting() {
        let flights = Flights::default();
        let (seat, pilot) = flights.board(TOKEN);
        drop(pilot);
        assert_eq!(seat.landing().await, Landing::Passing);
        assert!(flights.board(TOKEN).1.is_some());
    }
}
