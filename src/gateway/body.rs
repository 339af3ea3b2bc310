//! A request body that can be sent any number of times.
//!
//! The first bytes are kept in memory as they came, the rest in a file that has no name, so that
//! nothing of a prompt outlives the process. An attempt reads it through a [`BodyReader`]; nothing
//! is copied for it.

use std::{
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

use bytes::{Bytes, BytesMut};

use super::budget::Reservation;

/// One read from the file.
const PIECE: usize = 64 * 1024;

/// A piece below this size is put together with its neighbours.
const SMALL: usize = 4 * 1024;

/// A whole request body.
#[derive(Debug, Default)]
pub struct RequestBody {
    memory: Vec<Bytes>,
    spilled: Option<Spilled>,
    len: u64,
    _reservation: Option<Reservation>,
}

/// Collects a body as it arrives.
#[derive(Debug)]
pub struct BodyWriter {
    memory: Vec<Bytes>,
    /// Small pieces, until they are a large one.
    tail: BytesMut,
    in_memory: u64,
    memory_max: u64,
    spilled: Option<Spilled>,
    reservation: Reservation,
}

/// Reads a body from its beginning.
#[derive(Debug)]
pub struct BodyReader<'a> {
    body: &'a RequestBody,
    next: usize,
    offset: u64,
}

#[derive(Debug)]
struct Spilled {
    file: Arc<File>,
    len: u64,
}

// === impl RequestBody ===

impl RequestBody {
    pub fn len(&self) -> u64 {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub fn reader(&self) -> BodyReader<'_> {
        BodyReader { body: self, next: 0, offset: 0 }
    }
}

// === impl BodyWriter ===

impl BodyWriter {
    /// `memory_max` bytes stay in memory.
    pub fn new(memory_max: u64, reservation: Reservation) -> Self {
        Self {
            memory: Vec::new(),
            tail: BytesMut::new(),
            in_memory: 0,
            memory_max,
            spilled: None,
            reservation,
        }
    }

    /// Keeps one piece. Once the memory's share is full, everything later goes to a file in
    /// `folder`.
    ///
    /// # Errors
    /// If the file cannot be made or written.
    pub async fn push(&mut self, piece: Bytes, folder: &Path) -> io::Result<()> {
        // Many small pieces would cost more to keep than they hold.
        let piece = if piece.len() >= SMALL || self.is_untouched() {
            self.flush(folder).await?;
            piece
        } else {
            self.tail.extend_from_slice(&piece);
            if self.tail.len() < PIECE {
                return Ok(());
            }
            self.tail.split().freeze()
        };
        self.keep(piece, folder).await
    }

    fn is_untouched(&self) -> bool {
        self.memory.is_empty() && self.spilled.is_none() && self.tail.is_empty()
    }

    async fn flush(&mut self, folder: &Path) -> io::Result<()> {
        if self.tail.is_empty() {
            return Ok(());
        }
        let tail = self.tail.split().freeze();
        self.keep(tail, folder).await
    }

    async fn keep(&mut self, piece: Bytes, folder: &Path) -> io::Result<()> {
        let fits = self.in_memory + piece.len() as u64 <= self.memory_max;
        if self.spilled.is_none() && fits {
            self.in_memory += piece.len() as u64;
            self.memory.push(piece);
            return Ok(());
        }
        let spilled = match self.spilled.take() {
            Some(spilled) => spilled,
            // Without a name from its first moment, and for the owner only.
            None => Spilled { file: Arc::new(tempfile::tempfile_in(folder)?), len: 0 },
        };
        let file = Arc::clone(&spilled.file);
        let len = piece.len() as u64;
        blocking(move || (&*file).write_all(&piece)).await?;
        self.spilled = Some(Spilled { len: spilled.len + len, ..spilled });
        Ok(())
    }

    pub fn reservation(&mut self) -> &mut Reservation {
        &mut self.reservation
    }

    /// The body is whole.
    ///
    /// # Errors
    /// If its end cannot be written.
    pub async fn finish(mut self, folder: &Path) -> io::Result<RequestBody> {
        self.flush(folder).await?;
        let len = self.in_memory + self.spilled.as_ref().map_or(0, |it| it.len);
        Ok(RequestBody {
            memory: self.memory,
            spilled: self.spilled,
            len,
            _reservation: Some(self.reservation),
        })
    }
}

// === impl BodyReader ===

impl BodyReader<'_> {
    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// If the file cannot be read back.
    pub async fn next(&mut self) -> io::Result<Option<Bytes>> {
        if let Some(piece) = self.body.memory.get(self.next) {
            self.next += 1;
            return Ok(Some(piece.clone()));
        }
        let Some(spilled) = &self.body.spilled else { return Ok(None) };
        let rest = spilled.len - self.offset;
        if rest == 0 {
            return Ok(None);
        }
        let file = Arc::clone(&spilled.file);
        let offset = self.offset;
        let size = usize::try_from(rest).map_or(PIECE, |rest| rest.min(PIECE));
        let piece = blocking(move || {
            let mut piece = vec![0; size];
            file.read_exact_at(&mut piece, offset)?;
            Ok(Bytes::from(piece))
        })
        .await?;
        self.offset += piece.len() as u64;
        self.next += 1;
        Ok(Some(piece))
    }

    /// Whether at most one piece was handed out.
    pub fn is_at_first_piece(&self) -> bool {
        self.next <= 1
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(io::Error::other)?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::budget::Budget;

    async fn read_all(body: &RequestBody) -> Vec<u8> {
        let (mut reader, mut all) = (body.reader(), Vec::new());
        while let Some(piece) = reader.next().await.unwrap() {
            all.extend_from_slice(&piece);
        }
        all
    }

    #[tokio::test]
    async fn a_body_reads_the_same_any_number_of_times_wherever_it_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let sent: Vec<u8> = (0..300_000_u32).map(|it| (it % 251) as u8).collect();
        for memory_max in [0, 1, 100_000, 1_000_000] {
            let mut writer = BodyWriter::new(memory_max, Budget::new(u64::MAX).reserve());
            for piece in sent.chunks(7_001) {
                writer.push(Bytes::copy_from_slice(piece), folder.path()).await.unwrap();
            }
            let body = writer.finish(folder.path()).await.unwrap();
            assert_eq!(body.len(), 300_000);
            assert!(read_all(&body).await == sent, "with {memory_max} bytes in memory");
            assert!(read_all(&body).await == sent, "again with {memory_max} bytes in memory");
        }
    }

    #[tokio::test]
    async fn many_tiny_pieces_cost_no_more_than_they_hold() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = BodyWriter::new(1 << 20, Budget::new(u64::MAX).reserve());
        for at in 0..200_000_u32 {
            let piece = Bytes::copy_from_slice(&[(at % 251) as u8]);
            writer.push(piece, folder.path()).await.unwrap();
        }
        let body = writer.finish(folder.path()).await.unwrap();
        assert!(body.memory.len() < 10, "{} pieces", body.memory.len());
        let sent: Vec<u8> = (0..200_000_u32).map(|at| (at % 251) as u8).collect();
        assert!(read_all(&body).await == sent);
    }

    #[tokio::test]
    async fn a_spilled_body_has_no_name() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = BodyWriter::new(0, Budget::new(u64::MAX).reserve());
        writer.push(Bytes::from_static(b"a prompt"), folder.path()).await.unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        assert_eq!(read_all(&writer.finish(folder.path()).await.unwrap()).await, b"a prompt");
    }
}
