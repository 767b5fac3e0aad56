//! Tests of whole journals, most of them with small files.

mod closure;
mod copies;
mod crash;
mod damage;
mod prune;
mod slots;
mod store;
