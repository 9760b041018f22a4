//! The messages between host and guest, and nothing of what they mean.
//!
//! A frame is a 16-byte header and a payload, all integers big-endian:
//!
//! | bytes | field |
//! |--|--|
//! | 0 | protocol version, [`VERSION`] |
//! | 1 | kind, see [`Kind`] |
//! | 2..4 | reserved, zero |
//! | 4..8 | payload length, at most [`PAYLOAD_BYTES_MAX`] |
//! | 8..16 | id: of the run or of the call the frame belongs to |
//! | 16.. | payload: JSON unless the kind says otherwise |
//!
//! What a guest sends is hostile input: size first, then the kind, then the payload. A frame that
//! breaks these rules ends the guest that sent it.

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// The version that both sides must speak; the guest's source travels with the host, so they agree
/// unless something forged the frame.
pub const VERSION: u8 = 1;

/// Bytes of a frame's header.
pub const HEADER_BYTES: usize = 16;

/// The largest payload: the contract's bound on one tool result crossing the sandbox wall.
pub const PAYLOAD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// What a frame is. Low numbers go to the guest, numbers from 16 come from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// Execute code; id is the run's.
    Run = 1,
    /// The answer to a call; id is the call's.
    Reply = 2,
    /// Raise `KeyboardInterrupt` in the run with this id.
    Interrupt = 3,
    /// A read-only file for `/packages`, which goes no further than the worker of an embedded guest;
    /// the payload is a 2-byte length, that many bytes of name, then the content.
    Mount = 4,
    /// The guest is ready; id is 0.
    Hello = 16,
    /// Bytes for stdout; id is the run that printed them; the payload is raw.
    Stdout = 17,
    /// Bytes for stderr; as [`Kind::Stdout`].
    Stderr = 18,
    /// The guest asks the host for something; id is the call's, chosen by the guest.
    Call = 19,
    /// The guest no longer waits for the call with this id.
    CancelCall = 20,
    /// An image for the reply; the payload is a 2-byte length, that many bytes of MIME type, then
    /// the data.
    Display = 21,
    /// The run with this id has ended.
    Done = 22,
}

impl Kind {
    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Run,
            2 => Self::Reply,
            3 => Self::Interrupt,
            4 => Self::Mount,
            16 => Self::Hello,
            17 => Self::Stdout,
            18 => Self::Stderr,
            19 => Self::Call,
            20 => Self::CancelCall,
            21 => Self::Display,
            22 => Self::Done,
            _ => return None,
        })
    }

    /// The kind with this number, if it is one that a guest may send.
    #[cfg(feature = "wasi")]
    pub(crate) fn of_guest(byte: u8) -> Option<Self> {
        Self::from_byte(byte).filter(|kind| kind.comes_from_guest())
    }

    /// The kind with this number, if it is one that only the host sends.
    #[cfg(feature = "wasi")]
    pub(crate) fn of_host(byte: u8) -> Option<Self> {
        Self::from_byte(byte).filter(|kind| !kind.comes_from_guest())
    }

    /// Whether a guest may send this kind.
    fn comes_from_guest(self) -> bool {
        self as u8 >= 16
    }
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// What it is.
    pub kind: Kind,
    /// The run or call it belongs to.
    pub id: u64,
    /// The rest.
    pub payload: Bytes,
}

/// Why bytes of a guest are not a frame. There is no way to go on after one.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum FrameError {
    /// The first byte is not [`VERSION`].
    #[error("frame version {0}, expected {VERSION}")]
    Version(u8),
    /// The kind is unknown, or not one that a guest may send.
    #[error("frame kind {0} is not one that a guest sends")]
    Kind(u8),
    /// The length exceeds [`PAYLOAD_BYTES_MAX`].
    #[error("frame of {0} bytes exceeds the limit of {PAYLOAD_BYTES_MAX}")]
    TooLong(usize),
}

/// Write `frame` behind what `out` holds.
pub fn encode(kind: Kind, id: u64, payload: &[u8], out: &mut BytesMut) {
    out.reserve(HEADER_BYTES + payload.len());
    out.put_u8(VERSION);
    out.put_u8(kind as u8);
    out.put_u16(0);
    out.put_u32(payload.len() as u32);
    out.put_u64(id);
    out.put_slice(payload);
}

/// Take the next whole frame of a guest off the front of `buffer`; `None` asks for more bytes.
pub fn decode(buffer: &mut BytesMut) -> Result<Option<Frame>, FrameError> {
    let Some(header) = buffer.first_chunk::<HEADER_BYTES>() else {
        return Ok(None);
    };
    if header[0] != VERSION {
        return Err(FrameError::Version(header[0]));
    }
    let kind = Kind::from_byte(header[1])
        .filter(|kind| kind.comes_from_guest())
        .ok_or(FrameError::Kind(header[1]))?;
    let length = u32::from_be_bytes([header[4], header[5], header[6], header[7]]) as usize;
    if length > PAYLOAD_BYTES_MAX {
        return Err(FrameError::TooLong(length));
    }
    if buffer.len() < HEADER_BYTES + length {
        return Ok(None);
    }
    buffer.advance(8);
    let id = buffer.get_u64();
    let payload = buffer.split_to(length).freeze();
    Ok(Some(Frame { kind, id, payload }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_split_anywhere_comes_out_whole() {
        let mut whole = BytesMut::new();
        encode(Kind::Call, 7, b"{\"a\":1}", &mut whole);
        encode(Kind::Done, 8, b"", &mut whole);
        for cut in 0..whole.len() {
            let mut buffer = BytesMut::from(&whole[..cut]);
            let mut frames = Vec::new();
            while let Ok(Some(frame)) = decode(&mut buffer) {
                frames.push(frame);
            }
            buffer.extend_from_slice(&whole[cut..]);
            while let Ok(Some(frame)) = decode(&mut buffer) {
                frames.push(frame);
            }
            assert_eq!(
                frames
                    .iter()
                    .map(|frame| (frame.kind, frame.id, &frame.payload[..]))
                    .collect::<Vec<_>>(),
                [
                    (Kind::Call, 7, &b"{\"a\":1}"[..]),
                    (Kind::Done, 8, &b""[..])
                ],
            );
        }
    }

    #[test]
    fn a_guest_cannot_send_what_only_the_host_sends() {
        let mut buffer = BytesMut::new();
        encode(Kind::Reply, 1, b"{}", &mut buffer);
        assert_eq!(decode(&mut buffer), Err(FrameError::Kind(2)));
    }

    #[test]
    fn a_giant_frame_is_refused_by_its_header_alone() {
        let mut buffer =
            BytesMut::from(&[VERSION, Kind::Stdout as u8, 0, 0, 0xff, 0xff, 0xff, 0xff][..]);
        buffer.extend_from_slice(&[0; 8]);
        assert_eq!(decode(&mut buffer), Err(FrameError::TooLong(0xffff_ffff)));
    }
}
