// Package cputest skips tests for what the processor lacks, unless they are required.
package cputest

import (
	"os"
	"testing"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
)

// Need skips a test whose subject needs features that are not available, or fails it
// where LOWBIT_REQUIRE names one of them.
func Need(t testing.TB, needs cpufeature.Set) {
	t.Helper()
	missing := needs &^ cpufeature.Available
	required, err := cpufeature.Parse(os.Getenv("LOWBIT_REQUIRE"))
	switch {
	case err != nil:
		t.Fatalf("LOWBIT_REQUIRE: %v", err)
	case missing&required != 0:
		t.Fatalf("LOWBIT_REQUIRE names %v, which this processor lacks or LOWBIT_DISABLE turns off", missing&required)
	case missing != 0:
		t.Skipf("this processor lacks %v, or LOWBIT_DISABLE turns it off", missing)
	}
}
