//! Tests of whole journals with small files.

mod closure;
mod copies;
mod crash;
mod damage;
mod prune;
mod slots;
