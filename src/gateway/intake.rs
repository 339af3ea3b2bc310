//! Takes a request body in: bounded, inspected as it comes, kept as it came.

use std::{
    io,
    path::{Path, PathBuf},
};

use bytes::Bytes;
use http::{HeaderMap, header};

use super::{
    body::{BodyWriter, RequestBody},
    budget::Reservation,
};
use crate::{
    config::Limits,
    domain::refusal::{Kind, Refusal},
    protocol::{
        encoding::{DecodeError, Decoder},
        request::{Inspection, Inspector, Malformed},
    },
};

/// Pieces without a byte that one body may have.
const EMPTIES_MAX: u32 = 1_000;

/// One body on its way in.
#[derive(Debug)]
pub struct Intake {
    writer: BodyWriter,
    decoder: Decoder,
    inspector: Inspector,
    /// The first thing that was wrong with the document. The body is still read to its end, so
    /// that the client hears the answer and not a broken connection.
    malformed: Option<Malformed>,
    received: u64,
    empties: u32,
    max: u64,
    spill_folder: PathBuf,
}

// === impl Intake ===

impl Intake {
    /// Checks what the head announces, before anything is read.
    ///
    /// # Errors
    /// The refusal of a body that is too long, too much for now, or encoded in an unknown way.
    pub fn begin(
        headers: &HeaderMap,
        limits: &Limits,
        reservation: Reservation,
        spill_folder: PathBuf,
    ) -> Result<Self, Refusal> {
        let max = limits.max_body.bytes();
        let announced = headers
            .get(header::CONTENT_LENGTH)
            .and_then(|it| it.to_str().ok())
            .and_then(|it| it.parse::<u64>().ok())
            .unwrap_or(0);
        if announced > max {
            return Err(too_large(max));
        }
        if !reservation.would_fit(announced) {
            return Err(overloaded());
        }
        let encodings = headers.get_all(header::CONTENT_ENCODING);
        let decoder = Decoder::for_encoding(encodings, max).map_err(|unsupported| {
            Refusal::new(
                Kind::UnsupportedContentEncoding,
                format!("The request cannot be used: {unsupported}."),
            )
        })?;
        Ok(Self {
            writer: BodyWriter::new(limits.replay_body.bytes(), reservation),
            decoder,
            inspector: Inspector::new(),
            malformed: None,
            received: 0,
            empties: 0,
            max,
            spill_folder,
        })
    }

    /// Takes one piece.
    ///
    /// # Errors
    /// The refusal, once a bound is passed.
    pub async fn push(&mut self, piece: Bytes) -> Result<(), Refusal> {
        self.empties += u32::from(piece.is_empty());
        if self.empties > EMPTIES_MAX {
            return Err(Refusal::new(
                Kind::InvalidRequest,
                "The request body comes in too many empty pieces.",
            ));
        }
        self.received += piece.len() as u64;
        if self.received > self.max {
            return Err(too_large(self.max));
        }
        self.writer.reservation().grow(piece.len() as u64).map_err(|_| overloaded())?;
        self.inspect(&piece)?;
        let kept = self.writer.push(piece, &self.spill_folder).await;
        kept.map_err(|error| no_room(&error, &self.spill_folder))
    }

    /// The body is whole.
    ///
    /// # Errors
    /// The refusal of a body that is not one JSON object with at most one textual `model`.
    pub async fn finish(self) -> Result<(RequestBody, Inspection), Refusal> {
        self.decoder.finish().map_err(|error| undecodable(&error, self.max))?;
        if let Some(malformed) = self.malformed {
            return Err(not_json(&malformed));
        }
        let inspection = self.inspector.finish().map_err(|error| not_json(&error))?;
        inspection.model.name().map_err(|error| not_json(&error))?;
        let body = self.writer.finish(&self.spill_folder).await;
        Ok((body.map_err(|error| no_room(&error, &self.spill_folder))?, inspection))
    }

    fn inspect(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let Self { decoder, inspector, malformed, .. } = self;
        decoder
            .feed(piece, &mut |plain: &[u8]| {
                if malformed.is_none() {
                    *malformed = inspector.feed(plain).err();
                }
            })
            .map_err(|error| undecodable(&error, self.max))
    }
}

fn no_room(error: &io::Error, folder: &Path) -> Refusal {
    tracing::error!(%error, "Cannot keep a request body in {folder:?}: {error}");
    Refusal::new(
        Kind::Overloaded,
        "The gateway has no room for a body of this size now. Try again in a moment.",
    )
    .retry_after(1)
}

fn too_large(max: u64) -> Refusal {
    Refusal::new(
        Kind::PayloadTooLarge,
        format!("The request body is larger than the {max} bytes this gateway takes."),
    )
}

fn overloaded() -> Refusal {
    Refusal::new(
        Kind::Overloaded,
        "The gateway is holding as many request bodies as it may. Try again in a moment.",
    )
    .retry_after(1)
}

fn undecodable(error: &DecodeError, max: u64) -> Refusal {
    match error {
        DecodeError::TooLarge => Refusal::new(
            Kind::PayloadTooLarge,
            format!("The request body unpacks to more than the {max} bytes this gateway takes."),
        ),
        DecodeError::Corrupt { .. } | DecodeError::Truncated => Refusal::new(
            Kind::InvalidRequest,
            "The request body is not what its Content-Encoding says.",
        ),
    }
}

fn not_json(error: &Malformed) -> Refusal {
    Refusal::new(Kind::InvalidRequest, format!("The request cannot be used: {error}."))
}
