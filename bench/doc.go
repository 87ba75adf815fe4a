// Package bench prepares work for every row of the table of package kernels, at realistic
// values, and calls each implementation on it. The command's bench and the benchmarks of
// this package range over it; the latter also measure the same work in other libraries:
//
//	go test ./bench -bench '/op=quantize' -count 10 | tee new.txt && benchstat new.txt
//
// Names are op=…/variant=…/impl=…/n=…, on one goroutine, with the bytes that the
// operation moves.
package bench
