//go:build !unix

package main

import (
	"os"
	"syscall"
)

// signals interrupt a command.
func signals() []os.Signal { return []os.Signal{os.Interrupt, syscall.SIGTERM} }
