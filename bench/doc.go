// Package bench measures every implementation of every row of the table of package
// kernels, and the same work in other libraries where they have it:
//
//	go test ./bench -bench '/op=quantize' -count 10 | tee new.txt && benchstat new.txt
//
// Names are op=…/variant=…/impl=…/n=…, on one goroutine, with the bytes that the
// operation moves.
package bench
