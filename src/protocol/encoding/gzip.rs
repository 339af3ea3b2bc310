//! The gzip format: members of a header, deflated data, and a trailer that checks them. Pure.

use std::io;

use flate2::{Crc, Decompress};

use super::codec::{Step, inflate_step};

const HAS_HEADER_CHECKSUM: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// One or more members.
pub(super) struct Gzip {
    stage: Stage,
    inflate: Decompress,
    checksum: Crc,
    /// Whether a member is complete and no other one began.
    complete: bool,
}

/// Where in a member the data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So many bytes of the fixed part were read; its flags.
    Fixed {
        read: usize,
        flags: u8,
    },
    /// The length of the extra field, low byte first.
    ExtraLen {
        read: usize,
        len: u16,
        flags: u8,
    },
    Extra {
        left: u16,
        flags: u8,
    },
    Name {
        flags: u8,
    },
    Comment {
        flags: u8,
    },
    HeaderChecksum {
        left: usize,
    },
    Data,
    /// The data's checksum and length, low byte first.
    Trailer {
        read: usize,
        value: u64,
    },
}

// === impl Gzip ===

impl Default for Gzip {
    fn default() -> Self {
        Self {
            stage: Stage::Fixed { read: 0, flags: 0 },
            inflate: Decompress::new(false),
            checksum: Crc::new(),
            complete: false,
        }
    }
}

impl Gzip {
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    pub(super) fn step(&mut self, input: &[u8], out: &mut [u8]) -> io::Result<Step> {
        let mut taken = 0;
        while let Some(rest) = input.get(taken..) {
            if self.stage == Stage::Data {
                let (step, ended) = inflate_step(&mut self.inflate, rest, out)?;
                self.checksum.update(out.get(..step.given).unwrap_or_default());
                if ended {
                    self.stage = Stage::Trailer { read: 0, value: 0 };
                }
                return Ok(Step { taken: taken + step.taken, given: step.given });
            }
            let Some(&byte) = rest.first() else { break };
            taken += 1;
            self.stage = self.frame(byte)?;
        }
        Ok(Step { taken, given: 0 })
    }

    /// Reads a byte of a member's header or trailer.
    fn frame(&mut self, byte: u8) -> io::Result<Stage> {
        self.complete = false;
        Ok(match self.stage {
            Stage::Fixed { read, flags } => fixed(read, flags, byte)?,
            Stage::ExtraLen { read: 0, flags, .. } => {
                Stage::ExtraLen { read: 1, len: u16::from(byte), flags }
            }
            Stage::ExtraLen { len, flags, .. } => match len | u16::from(byte) << 8 {
                0 => after_extra(flags),
                left => Stage::Extra { left, flags },
            },
            Stage::Extra { left: 1, flags } => after_extra(flags),
            Stage::Extra { left, flags } => Stage::Extra { left: left - 1, flags },
            Stage::Name { flags } if byte == 0 => after_name(flags),
            Stage::Comment { flags } if byte == 0 => after_comment(flags),
            Stage::HeaderChecksum { left: 1 } => Stage::Data,
            Stage::HeaderChecksum { left } => Stage::HeaderChecksum { left: left - 1 },
            Stage::Trailer { read, value } => {
                self.trailer(read + 1, value | u64::from(byte) << (8 * read))?
            }
            stage @ (Stage::Name { .. } | Stage::Comment { .. } | Stage::Data) => stage,
        })
    }

    fn trailer(&mut self, read: usize, value: u64) -> io::Result<Stage> {
        if read < 8 {
            return Ok(Stage::Trailer { read, value });
        }
        let wanted = u64::from(self.checksum.amount()) << 32 | u64::from(self.checksum.sum());
        if value != wanted {
            return Err(io::Error::other("the checksum is wrong"));
        }
        self.inflate.reset(false);
        self.checksum.reset();
        self.complete = true;
        Ok(Stage::Fixed { read: 0, flags: 0 })
    }
}

/// Two bytes of magic, the method, the flags, then six bytes that say nothing here.
fn fixed(read: usize, flags: u8, byte: u8) -> io::Result<Stage> {
    let right = match read {
        0 => byte == 0x1F,
        1 => byte == 0x8B,
        2 => byte == 8,
        3 => byte & RESERVED == 0,
        _ => true,
    };
    if !right {
        return Err(io::Error::other("the header is wrong"));
    }
    let flags = if read == 3 { byte } else { flags };
    Ok(match read {
        ..9 => Stage::Fixed { read: read + 1, flags },
        _ if flags & HAS_EXTRA != 0 => Stage::ExtraLen { read: 0, len: 0, flags },
        _ => after_extra(flags),
    })
}

fn after_extra(flags: u8) -> Stage {
    if flags & HAS_NAME != 0 { Stage::Name { flags } } else { after_name(flags) }
}

fn after_name(flags: u8) -> Stage {
    if flags & HAS_COMMENT != 0 { Stage::Comment { flags } } else { after_comment(flags) }
}

fn after_comment(flags: u8) -> Stage {
    if flags & HAS_HEADER_CHECKSUM != 0 { Stage::HeaderChecksum { left: 2 } } else { Stage::Data }
}
