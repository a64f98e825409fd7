//! The command, most of it beside Git: the same answers, words, exit codes and files.

mod anywhere;
mod batch;
mod bench;
mod beside;
mod broken;
mod circles;
mod clone;
mod differential;
mod generate;
mod groups;
mod help;
mod hooks;
mod interrupt;
mod limits;
mod lost;
mod migrate;
mod moved;
mod names;
mod pipes;
mod places;
mod repair;
mod settings;
mod signature;
mod store;
mod usage;
mod verify;
