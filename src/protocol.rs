//! Bytes and their meaning: the wire formats the gateway reads in passing. Pure.

pub mod credential_file;
pub mod encoding;
pub mod error_body;
pub mod events;
pub mod headers;
pub mod json;
pub mod jwt;
pub mod oauth;
pub mod refusal;
pub mod request;
pub mod route;
pub mod sse;
