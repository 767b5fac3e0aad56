//! Tests of whole journals with small files.

mod closure;
mod crash;
mod damage;
mod prune;
mod slots;
