// Command lowbit compares optimizers by training a small model, steps them on safetensors files, quantises, rounds,
// orthogonalises and inspects such files, plans the memory of training, and shows and checks the implementations of lowbit's kernels.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/lowbit-go/lowbit/internal/cpufeature"
	"github.com/lowbit-go/lowbit/internal/tensorfile"
)

// commands is the command line: each field is a command, whose Run method takes an *env.
type commands struct {
	Train         trainCmd         `cmd:"" help:"Train a small language model with several optimizers and compare them."`
	Quantize      quantizeCmd      `cmd:"" help:"Quantise the floating-point tensors of a file."`
	Dequantize    dequantizeCmd    `cmd:"" help:"Turn quantised tensors back into floating-point ones."`
	Round         roundCmd         `cmd:"" help:"Round the floating-point tensors of a file to bfloat16."`
	Orthogonalize orthogonalizeCmd `cmd:"" help:"Replace the matrices of a file by their polar factors."`
	Step          stepCmd          `cmd:"" help:"Take steps of an optimizer on the parameters of a file."`
	ConvertState  convertStateCmd  `cmd:"" help:"Convert an optimizer's state to another representation, or read another system's."`
	Plan          planCmd          `cmd:"" help:"Count the bytes that training a model takes with each optimizer."`
	Inspect       inspectCmd       `cmd:"" help:"List a file's tensors and their formats, and their errors against its source."`
	Info          infoCmd          `cmd:"" help:"Show the processor's features and the implementation that each operation uses."`
	Verify        verifyCmd        `cmd:"" help:"Check every implementation that this machine can run against the reference."`
	Bench         benchCmd         `cmd:"" help:"Measure every implementation that this machine can run against its limits."`

	Version kong.VersionFlag `help:"Print the version."`
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), signals()...)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run executes one command line and returns its exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	return (&env{ctx: ctx, stdout: stdout, stderr: stderr, piece: pieceElements}).run(args)
}

func (e *env) run(args []string) int {
	err := e.execute(args)
	code := exitCode(err)
	switch code {
	case exitDone:
	case exitInterrupted:
		fmt.Fprintln(e.stderr, "lowbit: interrupted")
	default:
		fmt.Fprintln(e.stderr, "lowbit:", oneLine(err.Error()))
	}
	return code
}

func (e *env) execute(args []string) error {
	if _, err := cpufeature.Disabled(); err != nil {
		return inputError{fmt.Errorf("LOWBIT_DISABLE: %w", err)}
	}
	if len(args) == 0 {
		return e.wantCommand()
	}
	// kong prints the help, asks to exit, and goes on parsing when that returns.
	helped := false
	parser, err := e.parser(func(int) { helped = true })
	if err != nil {
		return err
	}
	command, err := parser.Parse(args)
	if helped {
		return nil
	}
	if err != nil {
		return err
	}
	return command.Run(e)
}

// wantCommand shows the commands as an error does: on stderr.
func (e *env) wantCommand() error {
	if err := (&env{ctx: e.ctx, stdout: e.stderr, stderr: e.stderr}).execute([]string{"--help"}); err != nil {
		return err
	}
	fmt.Fprintln(e.stderr)
	return badInput("no command, want one of these")
}

func (e *env) parser(exit func(int)) (*kong.Kong, error) {
	return kong.New(&commands{},
		kong.Name("lowbit"),
		kong.Description("Optimizers and numerical kernels for training in low precision."),
		kong.Writers(e.stdout, e.stderr),
		kong.Exit(exit),
		formatVars, orthogonalizeVars, trainVars, convertStateVars, kong.Vars{"version": version()},
	)
}

// inputError is an error of the command line or of what it names, rather than of the disk.
type inputError struct{ error }

func (e inputError) Unwrap() error { return e.error }

func badInput(format string, args ...any) error {
	return inputError{fmt.Errorf(format, args...)}
}

const (
	exitDone        = 0
	exitFailed      = 1 // a check, the disk or a device
	exitBadInput    = 2
	exitInterrupted = 130
)

func exitCode(err error) int {
	var usage *kong.ParseError
	var input inputError
	var format *tensorfile.FormatError
	switch {
	case err == nil:
		return exitDone
	case errors.Is(err, context.Canceled):
		return exitInterrupted
	case errors.As(err, &usage), errors.As(err, &input), errors.As(err, &format), errors.Is(err, fs.ErrExist):
		return exitBadInput
	default:
		return exitFailed
	}
}

// oneLine escapes the line breaks that names and paths may hold.
func oneLine(s string) string {
	return strings.NewReplacer("\n", `\n`, "\r", `\r`).Replace(s)
}
