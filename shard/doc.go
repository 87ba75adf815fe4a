// Package shard is the place of ZeRO-1: optimizer states and updates split over ranks,
// in pieces that keep blocks, random bits and sums what they are on one rank. It has
// nothing yet; package optim already decides precision, role and rule from the whole
// parameter, and draws random bits by an element's position in it.
package shard
